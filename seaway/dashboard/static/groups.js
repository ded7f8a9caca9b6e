// Groups of devices that belong to the same places, and so ran the same gangs: one lane each, whether a group has 1 device
// or 2048. A new place may cut groups in two. Rows of the timeline are made of lanes: a host with two groups has two.

import { sizeOf, spans } from "./words.js";

export class Groups {
  constructor() {
    this.islands = [];
    this.places = new Map(); // key -> {island, devices}
    this.all = []; // {devices, places, size, island}
    this.byPlace = new Map(); // key -> numbers of its groups
    this.dirty = false;
  }

  add(places, islands) {
    if (JSON.stringify(islands) !== JSON.stringify(this.islands)) {
      this.islands = islands;
      this.dirty = true;
    }
    for (const [key, { island, devices }] of Object.entries(places)) {
      this.places.set(Number(key), { island, devices, size: sizeOf(devices) });
      this.dirty = true;
    }
  }

  // Makes the groups anew if places have come; whether it did.
  changed() {
    if (!this.dirty) return false;
    this.dirty = false;
    const used = [...this.places].filter(([key]) => key >= 0); // below 0 are places of levels of memory only
    this.all = pieces(used).map(([places, devices]) => ({ places, devices, size: sizeOf(devices) }));
    const busy = new Set();
    for (const { devices } of this.all) for (const [low, high] of devices) for (let at = low; at < high; at++) busy.add(at);
    for (const island of this.islands) {
      const idle = [];
      const end = island.base_device + island.hosts * island.devices_per_host;
      for (let at = island.base_device; at < end; at++) {
        if (busy.has(at)) continue;
        if (idle.length && idle.at(-1)[1] === at) idle.at(-1)[1] = at + 1;
        else idle.push([at, at + 1]);
      }
      if (idle.length) this.all.push({ places: [], devices: idle, size: sizeOf(idle) });
    }
    this.all.sort((a, b) => a.devices[0][0] - b.devices[0][0]);
    this.byPlace = new Map();
    this.all.forEach((group, number) => {
      group.island = this.islandOf(group.devices[0][0]);
      group.number = number;
      for (const place of group.places) {
        if (!this.byPlace.has(place)) this.byPlace.set(place, []);
        this.byPlace.get(place).push(number);
      }
    });
    return true;
  }

  ofPlace(place) {
    return this.byPlace.get(place) ?? [];
  }

  sizeOfPlace(place) {
    return this.places.get(place)?.size ?? 0;
  }

  get devices() {
    return this.islands.reduce((sum, island) => sum + island.hosts * island.devices_per_host, 0);
  }

  islandOf(device) {
    return this.islands.findLast((island) => island.base_device <= device) ?? this.islands[0];
  }

  hostOf(device) {
    const island = this.islandOf(device);
    return island.base_host + Math.floor((device - island.base_device) / island.devices_per_host);
  }

  #lanesOf(low, high) {
    const lanes = [];
    for (const group of this.all) {
      let size = 0;
      for (const [from, to] of group.devices) size += Math.max(0, Math.min(to, high) - Math.max(from, low));
      if (size) lanes.push({ group, part: size / (high - low) });
    }
    return lanes;
  }

  // Rows of the timeline: {label, about, lanes: [{group, part}]}.
  rows(kind) {
    if (kind === "groups") {
      const several = this.islands.length > 1;
      return this.all.map((group) => ({
        label: `${several ? `${group.island.name}: ` : ""}${spans(group.devices, 2)}`,
        about: `${group.size === 1 ? "device" : `${group.size.toLocaleString("en")} devices,`} ${spans(group.devices)}`,
        lanes: [{ group, part: 1 }],
      }));
    }
    const rows = [];
    for (const island of this.islands) {
      const { base_device: first, base_host: host, hosts, devices_per_host: each } = island;
      if (kind === "islands") {
        rows.push({ label: island.name, about: `island ${island.name}`, lanes: this.#lanesOf(first, first + hosts * each) });
      } else if (kind === "hosts") {
        for (let at = 0; at < hosts; at++) {
          const low = first + at * each;
          rows.push({
            label: `host ${host + at}`, about: `host ${host + at}, devices ${spans([[low, low + each]])}`,
            lanes: this.#lanesOf(low, low + each),
          });
        }
      } else {
        const of = new Map();
        for (const group of this.all) for (const [low, high] of group.devices) for (let at = low; at < high; at++) of.set(at, group);
        for (let at = first; at < first + hosts * each; at++) {
          const group = of.get(at);
          if (group) rows.push({ label: `device ${at}`, about: `device ${at} of host ${this.hostOf(at)}`, lanes: [{ group, part: 1 }] });
        }
      }
    }
    return rows;
  }
}

// [[places, devices]]: devices that belong to exactly these places, by a sweep over the ends of spans.
function pieces(places) {
  const changes = new Map();
  const change = (at, key, begins) => {
    if (!changes.has(at)) changes.set(at, []);
    changes.get(at).push([key, begins]);
  };
  for (const [key, { devices }] of places) {
    for (const [low, high] of devices) {
      change(low, key, true);
      change(high, key, false);
    }
  }
  const inside = new Set(), found = new Map();
  let last = 0;
  for (const at of [...changes.keys()].sort((a, b) => a - b)) {
    if (inside.size) {
      const those = [...inside].sort((a, b) => a - b), name = those.join();
      if (!found.has(name)) found.set(name, [those, []]);
      const spansOf = found.get(name)[1];
      if (spansOf.length && spansOf.at(-1)[1] === last) spansOf.at(-1)[1] = at;
      else spansOf.push([last, at]);
    }
    for (const [key, begins] of changes.get(at)) begins ? inside.add(key) : inside.delete(key);
    last = at;
  }
  return [...found.values()];
}
