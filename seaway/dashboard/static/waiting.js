// What waits at a moment, and why. While the page follows a controller, the controller says it; an event log's controller
// is replayed to the moment; of a trace only times are known, and what was ahead then follows from them.

const LOOK = 20_000; // gangs that entered later, of which some may have been ready already

// [{client, program, step, where, why, count, since, stalled}], the longest wait first
export function waitsOf(store, view, controller) {
  const found = controller ? fromController(controller) : fromTrace(store, view.moment);
  const kept = store.reserved(view.moment, view.moment + 1);
  for (const each of found) {
    each.ahead = each.devices.length ? aheadOf(store, each.devices, view.moment) : [];
    each.keptFor = each.why === "reserved" ? [...new Set(kept.filter((one) => meet(one.devices, each.devices)).map((one) => one.client))] : [];
  }
  return found.sort((a, b) => a.since - b.since);
}

function fromController({ queues, waits }) {
  return [
    ...queues.map((each) => ({ ...each, where: each.island, devices: each.devices, reason: each.text, stalled: false })),
    ...waits.map((each) => ({ ...each, step: each.node, where: each.island, devices: [] })),
  ];
}

function fromTrace(store, moment) {
  const gangs = store.tables.gangs, found = new Map();
  const add = (key, about, since) => {
    const known = found.get(key);
    if (!known) found.set(key, { ...about, count: 1, since, stalled: false });
    else {
      known.count += 1;
      known.since = Math.min(known.since, since);
    }
  };
  const { ready, entered, client, program, step, place } = gangs.columns;
  const first = store.enteredAfter(moment), last = Math.min(gangs.n, first + LOOK);
  for (let row = first; row < last; row++) {
    if (!(ready[row] >= 0 && ready[row] <= moment)) continue;
    const devices = store.groups.places.get(place[row])?.devices ?? [];
    add(`${client[row]}/${program[row]}/${place[row]}`, {
      client: store.clientName(client[row]), program: store.word(program[row]), step: store.word(step[row]), where: "",
      devices, reason: "", place: place[row],
    }, ready[row]);
  }
  for (const each of found.values()) {
    const most = aheadOf(store, each.devices, moment).reduce((sum, [, count]) => sum + count, 0);
    each.reason = most ? `${most === 1 ? "1 gang is" : `${most} gangs are`} ahead on its devices` : "it may enter, and others go first";
  }
  const runs = store.tables.runs, { submitted, admitted, ended } = runs.columns;
  for (let row = 0; row < runs.n; row++) {
    if (submitted[row] > moment || (ended[row] >= 0 && ended[row] <= moment)) continue;
    if (admitted[row] >= 0 && admitted[row] <= moment) continue;
    add(`run/${runs.columns.client[row]}/${runs.columns.program[row]}`, {
      client: store.clientName(runs.columns.client[row]), program: store.word(runs.columns.program[row]), step: "",
      where: "", devices: [], reason: "it is not admitted: its slices, its code or its memory",
    }, submitted[row]);
  }
  return [...found.values()];
}

const meet = (some, others) => some.some(([low, high]) => others.some(([from, to]) => from < high && low < to));

// Whose gangs are in the order ahead, on the one of these devices that has most: [[client's number, how many]]
function aheadOf(store, devices, moment) {
  const { entered, finish, client } = store.tables.gangs.columns;
  let most = new Map(), size = 0;
  for (const group of store.groups.all) {
    if (!meet(group.devices, devices)) continue;
    const found = new Map();
    let count = 0;
    for (const each of group.places) {
      const rows = store.placeRows.get(each) ?? [];
      for (let at = lowerEnd(rows, finish, moment); at < rows.length && entered[rows[at]] <= moment; at++) {
        found.set(client[rows[at]], (found.get(client[rows[at]]) ?? 0) + 1);
        count += 1;
      }
    }
    if (count > size) [most, size] = [found, count];
  }
  return [...most].sort((a, b) => b[1] - a[1]);
}

function lowerEnd(rows, finish, moment) {
  let low = 0, high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (finish[rows[middle]] > moment) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The last gangs that entered: [{row, over: [[client's name, how many were ready for some of the devices]]}]. Gangs that have
// not entered are in no trace; while a controller is followed, its queues say whose they are.
export function decisionsOf(store, moment, count, queues) {
  const gangs = store.tables.gangs, { entered, ready, client, place } = gangs.columns, found = [];
  const end = store.enteredAfter(moment);
  for (let row = end - 1; row >= 0 && found.length < count; row--) {
    const over = new Map(), groups = new Set(store.groups.ofPlace(place[row])), mine = store.clientName(client[row]);
    for (let other = row + 1; other < Math.min(gangs.n, row + 400); other++) {
      if (!(ready[other] >= 0 && ready[other] <= entered[row]) || client[other] === client[row]) continue;
      if (store.groups.ofPlace(place[other]).some((each) => groups.has(each))) {
        const name = store.clientName(client[other]);
        over.set(name, (over.get(name) ?? 0) + 1);
      }
    }
    const devices = store.groups.places.get(place[row])?.devices ?? [];
    for (const each of queues) {
      if (each.client !== mine && each.since <= entered[row] && !over.has(each.client) && meet(each.devices, devices)) over.set(each.client, 1);
    }
    found.push({ row, over: [...over] });
  }
  return found;
}
