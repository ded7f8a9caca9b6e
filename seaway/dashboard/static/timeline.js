// The timeline: a lane for each group of devices, a bar for each gang. Where more gangs than pixels are in view, a pixel
// has the mixture of their colours, as opaque as devices were busy. Only rows in view are drawn.

import { inkOn, rgb, style } from "./colours.js";
import { stepOf } from "./view.js";
import { duration, el, moment, plural, spans } from "./words.js";

const AXIS = 22, LABELS = 128, LEAST = 4, MOST = 46, TALL = 440;
const FAILED = 128; // a gang's flag, as in core/record/trace.py
const DENSE = 1.5; // gangs a pixel above which colours are mixed

export class Timeline {
  constructor(place, tip, store, view, colours) {
    Object.assign(this, { place, tip, store, view, colours });
    this.kind = "groups";
    this.colouring = "client";
    this.canvas = el("canvas", { role: "img", "aria-label": "timeline of gangs by device" });
    this.spacer = el("div");
    this.spacer.append(this.canvas);
    place.append(this.spacer);
    this.rows = [];
    this.rowsOf = "";
    new ResizeObserver(() => this.draw()).observe(place);
    place.addEventListener("scroll", () => this.draw());
    this.#listen();
  }

  colourOf(row) {
    const { columns } = this.store.tables.gangs;
    if (this.colouring === "client") return this.colours.of("client", this.store.clientName(columns.client[row]));
    return this.colours.of(this.colouring, this.store.word(columns[this.colouring][row]));
  }

  #layout() {
    const { groups } = this.store, key = `${this.kind}/${this.store.identity}/${groups.all.length}/${groups.islands.length}`;
    if (this.rowsOf !== key) {
      this.rowsOf = key;
      this.rows = groups.rows(this.kind);
    }
    const count = Math.max(1, this.rows.length);
    this.rowHeight = Math.max(LEAST, Math.min(count < 3 ? 1.5 * MOST : MOST, Math.floor((TALL - AXIS) / count)));
    const whole = AXIS + count * this.rowHeight, tall = Math.min(TALL, whole);
    this.spacer.style.height = `${whole}px`;
    this.place.style.height = `${tall}px`;
    this.wide = this.place.clientWidth;
    this.tall = tall;
    const scale = devicePixelRatio || 1;
    const width = Math.round(this.wide * scale), height = Math.round(tall * scale);
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
      this.canvas.style.width = `${this.wide}px`;
      this.canvas.style.height = `${tall}px`;
    }
    this.scale = scale;
  }

  draw() {
    this.#layout();
    const pen = this.canvas.getContext("2d");
    pen.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    pen.clearRect(0, 0, this.wide, this.tall);
    pen.font = "11.5px system-ui, 'DejaVu Sans', sans-serif";
    pen.textBaseline = "middle";
    this.x0 = LABELS;
    this.pixels = Math.max(10, this.wide - LABELS);
    this.strips = new Map();
    this.reserved = this.store.reserved(this.view.t0, this.view.t1);
    const top = this.place.scrollTop, height = this.rowHeight;
    const first = Math.floor(top / height), last = Math.min(this.rows.length, Math.ceil((top + this.tall) / height));
    pen.save();
    pen.beginPath();
    pen.rect(0, AXIS, this.wide, this.tall - AXIS);
    pen.clip();
    const gap = height > 9 ? 2 : height > 5 ? 1 : 0, marks = this.#marks();
    for (let at = first; at < last; at++) {
      const row = this.rows[at];
      let y = AXIS + at * height - top;
      this.#label(pen, row, at, y, height);
      pen.fillStyle = style("--empty");
      pen.fillRect(LABELS, y, this.pixels, height - gap);
      pen.fillStyle = style("--faint");
      for (const { x } of marks) if (x >= LABELS) pen.fillRect(Math.round(x), y, 1, height - gap);
      pen.save();
      pen.beginPath();
      pen.rect(LABELS, y, this.pixels, height);
      pen.clip();
      for (const { group, part } of row.lanes) {
        const tall = (height - gap) * part;
        this.#lane(pen, group, y, tall);
        y += tall;
      }
      pen.restore();
    }
    pen.restore();
    this.#axis(pen);
  }

  #label(pen, row, at, y, height) {
    const every = Math.ceil(13 / height);
    if (at % every) return;
    pen.fillStyle = style("--quiet");
    pen.textAlign = "right";
    pen.fillText(fitting(pen, row.label, LABELS - 14), LABELS - 9, y + Math.min(height / 2, 8) + (height > 16 ? height / 2 - 8 : 0));
  }

  // Where times are written on the axis: [{x, text}]
  #marks() {
    const { t0, t1, live, following, high } = this.view, step = stepOf(t1 - t0, this.pixels / 110), found = [];
    const zero = live && following ? high : 0; // while it follows, times are before now
    for (let at = Math.ceil((t0 - zero) / step) * step; at <= t1 - zero; at += step) {
      found.push({ x: this.xOf(at + zero), text: zero && Math.abs(at) < step / 2 ? "now" : moment(at, step) });
    }
    return found;
  }

  #axis(pen) {
    pen.fillStyle = style("--card");
    pen.fillRect(0, 0, this.wide, AXIS);
    pen.textAlign = "center";
    for (const { x, text } of this.#marks()) {
      if (x < LABELS - 1) continue;
      pen.fillStyle = style("--faint");
      pen.fillRect(Math.round(x), AXIS - 5, 1, 5);
      pen.fillStyle = style("--quiet");
      const half = pen.measureText(text).width / 2;
      pen.fillText(text, Math.min(Math.max(x, LABELS + half), this.wide - half - 1), 8);
    }
  }

  xOf(time) {
    return LABELS + ((time - this.view.t0) / (this.view.t1 - this.view.t0)) * this.pixels;
  }

  timeAt(x) {
    return this.view.t0 + ((x - LABELS) / this.pixels) * (this.view.t1 - this.view.t0);
  }

  // What the policy kept free, and for whom: stripes behind the bars.
  #stripes(pen, group, y, tall) {
    for (const { client, devices, since, until } of this.reserved) {
      if (!devices.some(([low, high]) => group.devices.some(([from, to]) => from < high && low < to))) continue;
      const x = Math.max(LABELS, this.xOf(since)), end = Math.min(this.wide, this.xOf(until));
      pen.save();
      pen.beginPath();
      pen.rect(x, y, end - x, tall);
      pen.clip();
      pen.strokeStyle = this.colours.of("client", this.store.clientName(client));
      pen.globalAlpha = 0.45;
      pen.lineWidth = 2;
      pen.beginPath();
      for (let at = x - tall - (x % 7); at < end; at += 7) {
        pen.moveTo(at, y + tall);
        pen.lineTo(at + tall, y);
      }
      pen.stroke();
      pen.restore();
    }
  }

  #lane(pen, group, y, tall) {
    if (this.reserved.length) this.#stripes(pen, group, y, tall);
    let strip = this.strips.get(group.number);
    if (!strip) this.strips.set(group.number, (strip = this.#strip(group)));
    if (strip.image) {
      pen.imageSmoothingEnabled = false;
      pen.drawImage(strip.image, LABELS, y, this.pixels, tall);
      return;
    }
    for (const { x, width, wait, colour, row } of strip.bars) {
      if (wait > 0.5) {
        pen.globalAlpha = 0.28;
        pen.fillStyle = colour;
        pen.fillRect(x - wait, y, wait, tall);
        pen.globalAlpha = 1;
      }
      pen.fillStyle = colour;
      const shown = width > 3 ? width - 1 : Math.max(width, 0.7);
      if (width > 9 && tall > 7) {
        pen.beginPath();
        pen.roundRect(x, y, shown, tall, Math.min(3, tall / 3));
        pen.fill();
      } else pen.fillRect(x, y, shown, tall);
      if (this.store.tables.gangs.columns.flags[row] & FAILED) {
        pen.fillStyle = style("--bad");
        pen.fillRect(x, y + tall - Math.min(4, tall / 2), shown, Math.min(4, tall / 2));
      }
      if (width > 46 && tall > 12) this.#inscribe(pen, row, colour, x, y, shown, tall);
    }
  }

  #inscribe(pen, row, colour, x, y, width, tall) {
    const { columns } = this.store.tables.gangs, left = Math.max(x, LABELS), right = Math.min(x + width, this.wide);
    if (right - left < 40) return;
    pen.fillStyle = inkOn(colour);
    pen.textAlign = "left";
    pen.fillText(fitting(pen, this.store.word(columns.step[row]), right - left - 12), left + 6, y + tall / 2 + 0.5);
  }

  // The bars of a group, or an image of one row if there are too many.
  #strip(group) {
    const { t0, t1 } = this.view, { begin, finish, taken } = this.store.tables.gangs.columns, found = [];
    for (const place of group.places) this.store.between(place, t0, t1, (row) => found.push(row));
    if (found.length > DENSE * this.pixels) return { image: this.#mixture(found) };
    const now = this.view.high, bars = [];
    for (const row of found) {
      if (Number.isNaN(begin[row])) continue;
      const x = Math.max(this.xOf(begin[row]), LABELS - 8), end = Math.min(this.xOf(Math.min(finish[row], now)), this.wide + 8);
      const wait = x - Math.max(this.xOf(taken[row]), LABELS - 8);
      if (end >= LABELS || wait > 0) bars.push({ x, width: Math.max(0, end - x), wait, colour: this.colourOf(row), row });
    }
    return { bars };
  }

  #mixture(rows) {
    const wide = Math.round(this.pixels), sums = new Float32Array(4 * wide), { begin, finish } = this.store.tables.gangs.columns;
    const { t0, t1, high } = this.view, k = wide / (t1 - t0), known = new Map(), named = this.store.tables.gangs.columns[this.colouring];
    for (const row of rows) {
      const from = Math.max(0, (begin[row] - t0) * k), to = Math.min(wide, (Math.min(finish[row], high) - t0) * k);
      if (!(to > from)) continue;
      let colour = known.get(named[row]);
      if (!colour) known.set(named[row], (colour = rgb(this.colourOf(row))));
      const [red, green, blue] = colour;
      for (let pixel = Math.floor(from); pixel < to; pixel++) {
        const cover = Math.min(to, pixel + 1) - Math.max(from, pixel), at = 4 * pixel;
        sums[at] += cover * red;
        sums[at + 1] += cover * green;
        sums[at + 2] += cover * blue;
        sums[at + 3] += cover;
      }
    }
    const image = new OffscreenCanvas(wide, 1), pen = image.getContext("2d"), data = pen.createImageData(wide, 1);
    for (let at = 0; at < sums.length; at += 4) {
      const cover = sums[at + 3];
      if (!cover) continue;
      for (let part = 0; part < 3; part++) data.data[at + part] = sums[at + part] / cover;
      data.data[at + 3] = 255 * Math.min(1, cover);
    }
    pen.putImageData(data, 0, 0);
    return image;
  }

  // --- what the pointer is at --------------------------------------------------------------------------------

  find(x, y) {
    const at = Math.floor((y - AXIS + this.place.scrollTop) / this.rowHeight), row = this.rows[at];
    if (!row || x < LABELS || y < AXIS) return null;
    let inside = ((y - AXIS + this.place.scrollTop) % this.rowHeight) / this.rowHeight;
    const lane = row.lanes.find(({ part }) => (inside -= part) < 0) ?? row.lanes.at(-1);
    const time = this.timeAt(x), slack = (0.8 / this.pixels) * this.view.width;
    let gang = -1;
    const { begin, finish } = this.store.tables.gangs.columns;
    for (const place of lane?.group.places ?? []) {
      this.store.between(place, time - slack, time + slack, (each) => {
        if (Number.isNaN(begin[each])) return;
        if (gang < 0 || (begin[each] <= time && time < finish[each])) gang = each;
      });
    }
    return { row, lane, time, gang };
  }

  #describe({ row, lane, time, gang }) {
    if (gang < 0) {
      const kept = this.reserved.find((each) => each.since <= time && time < each.until
        && each.devices.some(([low, high]) => lane?.group.devices.some(([from, to]) => from < high && low < to)));
      const idle = kept ? `kept free by the policy for ${this.store.clientName(kept.client)}` : "idle here";
      return [el("b", {}, row.about), lane?.group.places.length ? idle : "nothing ran here yet"];
    }
    const { columns } = this.store.tables.gangs, runs = this.store.tables.runs, run = runs.rows.get(columns.run[gang]);
    const client = this.store.clientName(columns.client[gang]);
    const facts = [];
    const say = (name, what) => facts.push(el("dt", {}, name), el("dd", {}, what));
    say("client", client);
    if (run !== undefined) say("run", `${runs.columns.call[run]} of ${this.store.word(columns.program[gang])}`);
    const over = Number.isFinite(columns.finish[gang]);
    say(over ? "computed" : "has computed", duration((over ? columns.finish[gang] : this.view.high) - columns.begin[gang]));
    say("from", `${moment(columns.begin[gang], this.view.width / 1000)}`);
    if (columns.ready[gang] >= 0) say("waited", `${duration(columns.entered[gang] - columns.ready[gang])} to enter`);
    if (columns.flags[gang] & FAILED) say("failed", run === undefined ? "" : this.store.word(runs.columns.cause[run]));
    if (columns.skew[gang] > 0) say("waits for peers", duration(columns.skew[gang]));
    const place = this.store.groups.places.get(columns.place[gang]);
    if (place) say("on", `${plural(place.size, "device")}: ${spans(place.devices)}`);
    say("order", `${columns.seq[gang]}`);
    return [el("b", {}, this.store.word(columns.step[gang])), el("dl", { class: "facts", style: { margin: "0" } }, ...facts)];
  }

  #listen() {
    const { place, view } = this;
    const here = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    place.addEventListener("wheel", (event) => {
      const scrolls = this.spacer.offsetHeight > this.tall + 1 && !event.ctrlKey && !event.altKey && !event.metaKey;
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
        view.move(((event.deltaX || event.deltaY) / this.pixels) * view.width);
      } else if (!scrolls) view.zoom(1.0018 ** event.deltaY, view.following && view.live ? undefined : this.timeAt(here(event)[0]));
      else return;
      event.preventDefault();
    }, { passive: false });
    let held = null;
    place.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.target !== this.canvas) return;
      held = { x: here(event)[0], t0: view.t0, t1: view.t1 };
      this.canvas.setPointerCapture(event.pointerId);
    });
    place.addEventListener("pointermove", (event) => {
      const [x, y] = here(event);
      if (held && Math.abs(x - held.x) > 3) {
        place.classList.add("moving");
        this.tip.hidden = true;
        if (view.live) view.following = false;
        const by = ((held.x - x) / this.pixels) * (held.t1 - held.t0);
        view.set(held.t0 + by, held.t1 + by);
        return;
      }
      const found = this.find(x, y);
      if (!found) this.tip.hidden = true;
      else tell(this.tip, event, this.#describe(found));
    });
    const release = () => {
      held = null;
      place.classList.remove("moving");
    };
    place.addEventListener("pointerup", release);
    place.addEventListener("pointercancel", release);
    place.addEventListener("pointerleave", () => (this.tip.hidden = true));
    place.addEventListener("dblclick", () => view.whole());
  }
}

// Shows a note beside the pointer.
export function tell(tip, event, inside) {
  tip.replaceChildren(...inside);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - width - 8)}px`;
  tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18}px`;
}

export function fitting(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let size = text.length;
  while (size > 1 && pen.measureText(`${text.slice(0, size)}…`).width > width) size -= Math.ceil(size / 12);
  return size > 1 ? `${text.slice(0, size)}…` : "";
}
