// Islands and their hosts: a square for each host, shaded by how busy it was, its memory, or its clock's bound.

import { rgb, style } from "./colours.js";
import { tell } from "./timeline.js";
import { busyOfGroups } from "./usage.js";
import { bytes, duration, el, percent, show, sizeOf, spans } from "./words.js";

const PHASES = { running: "good", forming: "warn" };

export class Machines {
  constructor(place, tip, store, view) {
    Object.assign(this, { place, tip, store, view });
    this.shade = "busy";
    this.hosts = []; // as last told
    this.grids = new Map();
  }

  draw(head, controller, theme) {
    if (head.hosts.length) this.hosts = head.hosts;
    this.head = head;
    this.controller = controller;
    const { islands } = this.store.groups;
    const states = islands.map((island, at) => controller?.islands[at]);
    const memory = this.#memory();
    const key = JSON.stringify([theme, this.store.identity, islands.length, states, head.connected, memory]);
    show(this.place, key, () => {
      this.grids.clear();
      return islands.map((island, at) => this.#island(island, states[at], memory.filter((each) => each.island === island.index)));
    });
    this.#shadeAll();
  }

  #island(island, state, memory) {
    const here = [[island.base_host, island.base_host + island.hosts]];
    const up = this.controller ? overlap(this.head.connected, here) : null;
    const facts = [];
    const say = (name, what) => what && facts.push(el("dt", {}, name), el("dd", {}, what));
    say("hosts", up === null ? island.hosts.toLocaleString("en") : `${up.toLocaleString("en")} of ${island.hosts.toLocaleString("en")} connected`);
    say("devices", `${(island.hosts * island.devices_per_host).toLocaleString("en")}${island.kind ? ` ${island.kind}` : ""}`);
    if (state) {
      say("policy", state.policy);
      say("under way", `${state.under_way}`);
      say("epoch", `${state.epoch}`);
      say("breaks", state.broken);
      if (state.backlog) say("behind", `${state.backlog} messages`);
    }
    const canvas = el("canvas", { role: "img", "aria-label": `hosts of ${island.name}` });
    this.grids.set(island.index, { canvas, island, state });
    canvas.addEventListener("pointermove", (event) => this.#hover(event, island));
    canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    return el("div", { class: "island" },
      el("div", {},
        el("h3", {}, island.name, " ", state ? el("span", { class: `pill ${PHASES[state.phase] ?? "warn"}` }, state.phase) : ""),
        el("dl", { class: "facts", style: { margin: "0" } }, ...facts)),
      el("div", {}, canvas, ...(memory.length ? [el("div", { class: "memory" }, ...memory.slice(0, 6).map(meter))] : [])));
  }

  // Levels of memory at the moment, alike ones together: [{island, devices, resident, committed, capacity}]
  #memory() {
    const found = new Map(), moment = this.view.moment;
    for (const [place, levels] of this.store.levels) {
      const level = levelAt(levels, moment), about = this.store.groups.places.get(place);
      if (!level || !level.capacity || !about) continue;
      const key = `${about.island}/${level.resident}/${level.committed}/${level.capacity}`;
      const known = found.get(key);
      if (known) known.devices = known.devices.concat(about.devices);
      else found.set(key, { island: about.island, devices: about.devices, ...level, at: 0 });
    }
    for (const each of found.values()) each.devices.sort((a, b) => a[0] - b[0]);
    return [...found.values()].sort((a, b) => b.committed / b.capacity - a.committed / a.capacity).slice(0, 24);
  }

  #values() {
    const { groups } = this.store, sums = new Float64Array(groups.islands.reduce((most, each) => Math.max(most, each.base_host + each.hosts), 0));
    if (this.shade === "clock") {
      const most = Math.max(1, ...this.hosts.map((each) => each.bound));
      this.hosts.forEach((each, host) => (sums[host] = Math.max(0, each.bound) / most));
      return sums;
    }
    const add = (devices, value) => {
      for (const [low, high] of devices) {
        for (let at = low; at < high; at++) sums[groups.hostOf(at)] += value / groups.islandOf(at).devices_per_host;
      }
    };
    if (this.shade === "memory") for (const each of this.#memory()) add(each.devices, each.committed / each.capacity);
    else {
      const { t0, t1, high, low } = this.view, busy = busyOfGroups(this.store, Math.max(t0, low), Math.min(t1, high));
      groups.all.forEach((group, at) => busy[at] && add(group.devices, busy[at]));
    }
    return sums;
  }

  #shadeAll() {
    const values = this.#values(), accent = rgb(hex(style("--accent"))), empty = rgb(hex(style("--empty")));
    this.values = values;
    const members = new Set();
    for (const { canvas, island, state } of this.grids.values()) {
      const wide = canvas.parentElement.clientWidth, cellSize = island.hosts > 256 ? 13 : island.hosts > 64 ? 18 : island.hosts > 8 ? 26 : 40;
      const across = Math.max(1, Math.min(island.hosts, Math.floor(wide / cellSize))), down = Math.ceil(island.hosts / across);
      const scale = devicePixelRatio || 1;
      canvas.width = Math.round(across * cellSize * scale);
      canvas.height = Math.round(down * cellSize * scale);
      canvas.style.width = `${across * cellSize}px`;
      canvas.style.height = `${down * cellSize}px`;
      const pen = canvas.getContext("2d");
      pen.setTransform(scale, 0, 0, scale, 0, 0);
      members.clear();
      for (const [low, high] of state?.members ?? []) for (let at = low; at < high; at++) members.add(at);
      const connected = new Set();
      for (const [low, high] of this.head.connected) for (let at = low; at < high; at++) connected.add(at);
      for (let at = 0; at < island.hosts; at++) {
        const host = island.base_host + at, x = (at % across) * cellSize, y = Math.floor(at / across) * cellSize;
        const part = Math.min(1, values[host] || 0);
        pen.beginPath();
        pen.roundRect(x + 1, y + 1, cellSize - 3, cellSize - 3, cellSize > 20 ? 5 : 3);
        if (this.controller && !connected.has(host)) {
          pen.strokeStyle = style("--bad");
          pen.lineWidth = 1.5;
          pen.stroke();
          continue;
        }
        pen.fillStyle = mixed(empty, accent, 0.06 + 0.94 * part);
        pen.fill();
        if (this.controller && !members.has(host)) {
          pen.strokeStyle = style("--warn");
          pen.lineWidth = 1.5;
          pen.stroke();
        }
        if (cellSize >= 26) {
          pen.fillStyle = part > 0.5 ? style("--card") : style("--quiet");
          pen.font = "10.5px system-ui, 'DejaVu Sans', sans-serif";
          pen.textAlign = "center";
          pen.textBaseline = "middle";
          pen.fillText(`${host}`, x + cellSize / 2 - 0.5, y + cellSize / 2);
        }
      }
      this.grids.get(island.index).geometry = { cellSize, across };
    }
  }

  #hover(event, island) {
    const { canvas, geometry, state } = this.grids.get(island.index), box = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / geometry.cellSize), line = Math.floor((event.clientY - box.top) / geometry.cellSize);
    const at = line * geometry.across + column;
    if (column < 0 || column >= geometry.across || at >= island.hosts) {
      this.tip.hidden = true;
      return;
    }
    const host = island.base_host + at, about = this.hosts[host], facts = [];
    const say = (name, what) => facts.push(el("dt", {}, name), el("dd", {}, what));
    const first = island.base_device + at * island.devices_per_host;
    say("devices", spans([[first, first + island.devices_per_host]]));
    if (this.shade !== "clock") say(this.shade === "busy" ? "busy" : "memory", percent(this.values[host]));
    if (state) say("state", contains(this.head.connected, host) ? (contains(state.members, host) ? "member" : "connected, not a member") : "not connected");
    if (about?.agent) say("agent", about.agent);
    if (about?.address) say("address", about.address);
    if (about && about.bound >= 0) say("clock", `${duration(about.offset)} ahead, within ${duration(about.bound)}${about.jumps ? `; ${about.jumps} jumps` : ""}`);
    tell(this.tip, event, [el("b", {}, `host ${host}`), el("dl", { class: "facts", style: { margin: "0" } }, ...facts)]);
  }
}

function meter({ devices, resident, committed, capacity }) {
  const part = committed / capacity;
  return el("div", { title: `${bytes(resident)} in use and ${bytes(committed)} reserved, of ${bytes(capacity)}` },
    el("span", { class: "meter" }, el("i", { style: { width: `${100 * Math.min(1, part)}%`, background: part > 0.9 ? "var(--warn)" : "var(--accent)" } })),
    ` ${bytes(committed)} of ${bytes(capacity)} `, el("span", { class: "quiet" }, `${sizeOf(devices) === 1 ? "on device" : "on each of devices"} ${spans(devices)}`));
}

function levelAt(levels, moment) {
  for (let at = levels.length - 1; at >= 0; at--) if (levels[at].at <= moment) return levels[at];
  return null;
}

const contains = (pairs, number) => pairs.some(([low, high]) => low <= number && number < high);

function overlap(pairs, others) {
  let sum = 0;
  for (const [low, high] of pairs) for (const [from, to] of others) sum += Math.max(0, Math.min(high, to) - Math.max(low, from));
  return sum;
}

const hex = (colour) => (/^#[0-9a-f]{6}$/i.test(colour) ? colour : "#888888");
const mixed = (from, to, part) => `rgb(${from.map((each, at) => Math.round(each + (to[at] - each) * part)).join(" ")})`;
