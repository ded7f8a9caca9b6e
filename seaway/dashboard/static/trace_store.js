// The trace as far as this browser has it: columns of numbers by row, what follows from them, and what is asked for next.
//
// A gang that has ended on a real cluster has no start: the controller does not see it. It is taken to start when it had
// entered and all earlier gangs of its devices were over, as in Seaway's own tables (seaway/trace/facts.py).

import { Groups } from "./groups.js";

const WORDS = { clients: ["label"], runs: ["program", "code", "cause", "node"], gangs: ["step"], transfers: ["step"], reservations: [] };
const OVER = { runs: "ended", gangs: "ended", transfers: "ended", reservations: "until", clients: "closed" };
const KEYS = { clients: "client", runs: "run", gangs: "seq", transfers: "seq", reservations: "number" };
const MOST_LIVE = 240_000; // gangs that are kept of a run that goes on
const NONE = -1;

class Table {
  constructor() {
    this.n = 0;
    this.columns = {};
    this.rows = new Map(); // key -> row
    this.open = new Set(); // keys of rows of which more will be known
  }

  column(name) {
    return (this.columns[name] ??= new Float64Array(Math.max(1024, this.n)));
  }

  grow(size) {
    for (const [name, old] of Object.entries(this.columns)) {
      if (old.length >= size) continue;
      const larger = new Float64Array(Math.max(size, 2 * old.length));
      larger.set(old.subarray(0, this.n));
      this.columns[name] = larger;
    }
  }

  // Forgets the first rows.
  drop(count, key) {
    for (const column of Object.values(this.columns)) column.copyWithin(0, count, this.n);
    this.n -= count;
    this.rows = new Map();
    for (let row = 0; row < this.n; row++) this.rows.set(this.columns[key][row], row);
  }
}

export class TraceStore {
  constructor() {
    this.clear();
  }

  clear() {
    this.identity = "";
    this.after = {};
    this.knownPlaces = 0;
    this.words = [];
    this.numbers = new Map();
    this.tables = { clients: new Table(), runs: new Table(), gangs: new Table(), transfers: new Table(), reservations: new Table() };
    this.levels = new Map(); // place -> {at, resident, committed, capacity}
    this.groups = new Groups();
    this.version = 0; // grows with each change
    this.first = Infinity; // of all times that are known
    this.last = 0;
    this.skipped = 0;
    this.restart();
  }

  restart() {
    this.settled = 0; // gangs before this row are over, and worked out
    this.freeThen = null; // when each group was free, at that row
    this.placeRows = new Map(); // place -> its gangs' rows, in order
    this.listed = 0; // rows that stand in these
  }

  // What this browser has, for the next look.
  cursor(most) {
    const open = {};
    for (const [name, table] of Object.entries(this.tables)) open[name] = [...table.open];
    return { after: this.after, open, places: this.knownPlaces, most };
  }

  word(number) {
    return number < 0 ? "" : this.words[number];
  }

  apply({ head, tables }, live) {
    if (head.identity !== this.identity) {
      this.clear();
      this.identity = head.identity;
    }
    this.after = head.after;
    this.knownPlaces = head.known_places;
    this.skipped += head.skipped.gangs ?? 0;
    this.groups.add(head.places, head.islands);
    const numbers = head.words.map((word) => this.#number(word));
    for (const name of Object.keys(this.tables)) this.#take(name, tables[name], numbers);
    this.#takeLevels(tables.memory);
    this.#ofRuns(tables.gangs);
    if (live && this.tables.gangs.n > MOST_LIVE) this.#dropOldest();
    if (this.groups.changed()) this.restart();
    this.#workOut();
    this.last = Math.max(this.last, head.now);
    this.version += 1;
  }

  #number(word) {
    let number = this.numbers.get(word);
    if (number === undefined) {
      number = this.words.push(word) - 1;
      this.numbers.set(word, number);
    }
    return number;
  }

  #take(name, found, numbers) {
    const table = this.tables[name], keys = found[KEYS[name]], over = found[OVER[name]];
    const names = Object.keys(found).filter((each) => each !== "rows");
    for (const column of names) table.column(column);
    table.grow(table.n + found.rows);
    const order = inOrder(keys);
    const targets = new Int32Array(found.rows);
    for (let at = 0; at < found.rows; at++) {
      const row = order ? order[at] : at, key = keys[row];
      let target = table.rows.get(key);
      if (target === undefined) table.rows.set(key, (target = table.n++));
      targets[row] = target;
      if (over[row] < 0) table.open.add(key);
      else table.open.delete(key);
    }
    for (const column of names) {
      const from = found[column], to = table.columns[column], isWord = WORDS[name].includes(column);
      for (let row = 0; row < found.rows; row++) {
        to[targets[row]] = isWord && from[row] >= 0 ? numbers[from[row]] : from[row];
      }
    }
    const began = found.entered ?? found.submitted ?? found.since ?? found.opened;
    for (let row = 0; row < found.rows; row++) if (began[row] >= 0 && began[row] < this.first) this.first = began[row];
  }

  #takeLevels(found) {
    for (let row = 0; row < found.rows; row++) {
      const place = found.place[row];
      let levels = this.levels.get(place);
      if (!levels) this.levels.set(place, (levels = []));
      levels.push({
        at: found.at[row], resident: found.resident[row], committed: found.committed[row], capacity: found.capacity[row],
      });
      if (levels.length > 4000) levels.splice(0, 2000);
    }
  }

  // Each gang's client and program, by its run.
  #ofRuns(found) {
    const gangs = this.tables.gangs, runs = this.tables.runs;
    for (const name of ["client", "program", "begin", "finish", "taken"]) gangs.column(name);
    gangs.grow(gangs.n);
    for (let row = 0; row < found.rows; row++) {
      const target = gangs.rows.get(found.seq[row]), run = runs.rows.get(found.run[row]);
      gangs.columns.client[target] = run === undefined ? NONE : runs.columns.client[run];
      gangs.columns.program[target] = run === undefined ? NONE : runs.columns.program[run];
      if (target < this.settled) this.settled = 0; // it was known, and is known better now
    }
  }

  #dropOldest() {
    const count = Math.floor(MOST_LIVE / 3);
    this.tables.gangs.drop(count, "seq");
    const runs = this.tables.runs;
    if (runs.n > MOST_LIVE) runs.drop(Math.floor(MOST_LIVE / 3), "run");
    const transfers = this.tables.transfers;
    if (transfers.n > MOST_LIVE) transfers.drop(Math.floor(MOST_LIVE / 3), "seq");
    this.first = this.tables.gangs.columns.entered[0];
    this.restart();
  }

  // begin, finish, taken: when a gang's devices computed, and from when on the first of them waited for the last. A gang
  // under way has no finish (Infinity); one that is still behind others has no begin (NaN).
  #workOut() {
    const { n, columns } = this.tables.gangs;
    if (!n) return;
    const { place, entered, enqueued, started, ended, skew, begin, finish, taken } = columns;
    if (this.settled === 0 || !this.freeThen) {
      this.settled = 0;
      this.freeThen = new Float64Array(this.groups.all.length);
    }
    const free = this.freeThen.slice();
    let settling = true;
    for (let row = this.settled; row < n; row++) {
      const groups = this.groups.ofPlace(place[row]);
      let before = 0;
      for (const group of groups) before = Math.max(before, free[group]);
      const here = Math.max(entered[row], enqueued[row], before);
      if (ended[row] >= 0) {
        begin[row] = started[row] >= 0 ? started[row] : Math.min(here, ended[row]);
        finish[row] = ended[row];
      } else {
        begin[row] = started[row] >= 0 ? started[row] : Number.isFinite(before) ? here : NaN;
        finish[row] = Infinity;
      }
      taken[row] = skew[row] > 0 && enqueued[row] >= 0 ? Math.min(begin[row], Math.max(enqueued[row], before)) : begin[row];
      for (const group of groups) free[group] = Math.max(free[group], finish[row]);
      if (settling && ended[row] >= 0) {
        for (const group of groups) this.freeThen[group] = free[group];
        this.settled = row + 1;
      } else settling = false;
      if (row >= this.listed) {
        let rows = this.placeRows.get(place[row]);
        if (!rows) this.placeRows.set(place[row], (rows = []));
        rows.push(row);
      }
      if (ended[row] > this.last) this.last = ended[row];
    }
    this.listed = Math.max(this.listed, n);
  }

  // Devices that the policy kept free between two times: [{client, devices, since, until}]
  reserved(t0, t1) {
    const { n, columns } = this.tables.reservations, found = [];
    for (let row = n - 1; row >= 0 && found.length < 2000; row--) {
      const until = columns.until[row] < 0 ? this.last : columns.until[row], place = this.groups.places.get(columns.place[row]);
      if (place && columns.since[row] < t1 && until > t0) found.push({ client: columns.client[row], devices: place.devices, since: columns.since[row], until });
    }
    return found;
  }

  clientOf(number) {
    const { rows, columns } = this.tables.clients, row = rows.get(number);
    if (row === undefined) return null;
    return { number, name: this.word(columns.label[row]), weight: columns.weight[row], priority: columns.priority[row] };
  }

  clientName(number) {
    const found = this.clientOf(number);
    return found === null ? "unknown client" : found.name;
  }

  // Calls `act(row)` for the gangs of a place whose devices were taken between two times.
  between(place, t0, t1, act) {
    const rows = this.placeRows.get(place);
    if (!rows) return;
    const { taken, finish } = this.tables.gangs.columns;
    let low = 0, high = rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (finish[rows[middle]] > t0) high = middle;
      else low = middle + 1;
    }
    for (; low < rows.length; low++) {
      const row = rows[low];
      if (!(taken[row] < t1)) break; // also of those that have not begun
      if (finish[row] > t0) act(row);
    }
  }

  // The first gang that entered after this time. They are in the order in which they entered.
  enteredAfter(time) {
    const { n, columns } = this.tables.gangs;
    let low = 0, high = n;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (columns.entered[middle] > time) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}

// The order of rows by their keys; null if that is how they are.
function inOrder(keys) {
  for (let at = 1; at < keys.length; at++) {
    if (keys[at] < keys[at - 1]) return Uint32Array.from(keys.keys()).sort((a, b) => keys[a] - keys[b]);
  }
  return null;
}
