// The strip below the timeline: all there is, with the part that is shown. Drag the part to move through time, drag one of
// its ends to zoom, press beside it to go there.

import { style } from "./colours.js";
import { el } from "./words.js";
import { binsOf, usage } from "./usage.js";

const LEFT = 128, EDGE = 7, EVERY = 1500; // milliseconds between two looks at the whole of a run that goes on

export class Overview {
  constructor(place, store, view, colours) {
    Object.assign(this, { place, store, view, colours });
    this.canvas = el("canvas", { role: "img", "aria-label": "the whole run, with the part that is shown" });
    place.append(this.canvas);
    this.known = null;
    this.drawnAt = 0;
    new ResizeObserver(() => this.draw()).observe(place);
    this.#listen();
  }

  draw() {
    const wide = this.place.clientWidth, tall = this.place.clientHeight, scale = devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(wide * scale)) {
      this.canvas.width = Math.round(wide * scale);
      this.canvas.height = Math.round(tall * scale);
      this.canvas.style.width = `${wide}px`;
      this.canvas.style.height = `${tall}px`;
      this.known = null;
    }
    this.pixels = Math.max(10, wide - LEFT);
    const pen = this.canvas.getContext("2d"), { t0, t1 } = this.view;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, wide, tall);
    pen.fillStyle = style("--empty");
    pen.beginPath();
    pen.roundRect(LEFT, 0, this.pixels, tall, 5);
    pen.fill();
    this.#shape(pen, tall);
    const from = Math.max(LEFT, this.xOf(t0)), to = Math.min(wide, Math.max(this.xOf(t1), from + 3));
    pen.fillStyle = style("--card");
    pen.globalAlpha = 0.62;
    pen.fillRect(LEFT, 0, from - LEFT, tall);
    pen.fillRect(to, 0, wide - to, tall);
    pen.globalAlpha = 1;
    pen.strokeStyle = style("--accent");
    pen.lineWidth = 1.5;
    pen.strokeRect(from + 0.75, 0.75, Math.max(2, to - from - 1.5), tall - 1.5);
  }

  #shape(pen, tall) {
    const { low, high } = this.view, count = binsOf(this.store, low, high, Math.max(24, Math.floor(this.pixels / 3)));
    const grown = this.known && high - low > 1.02 * (this.known.high - this.known.low);
    const late = grown || performance.now() - this.drawnAt > EVERY, key = this.store.identity;
    if (!this.known || this.known.key !== key || (late && this.known.version !== this.store.version)) {
      this.known = { key, version: this.store.version, low, high, bins: usage(this.store, low, high, count).bins };
      this.drawnAt = performance.now();
    }
    const { bins } = this.known, base = new Float64Array(bins.values().next().value?.length ?? 0);
    for (const [client, parts] of bins) {
      pen.fillStyle = this.colours.of("client", this.store.clientName(client));
      pen.beginPath();
      for (let bin = 0; bin < parts.length; bin++) {
        const height = Math.min(1, parts[bin]) * tall, y = tall - base[bin] - height;
        const x = this.xOf(this.known.low + ((this.known.high - this.known.low) * bin) / base.length);
        const next = this.xOf(this.known.low + ((this.known.high - this.known.low) * (bin + 1)) / base.length);
        if (height > 0) pen.rect(x, y, next - x + 0.3, height);
        base[bin] += height;
      }
      pen.fill();
    }
  }

  xOf(time) {
    return LEFT + ((time - this.view.low) / (this.view.high - this.view.low)) * this.pixels;
  }

  #listen() {
    const { place, view } = this;
    let held = null;
    const timeAt = (event) => {
      const x = event.clientX - this.canvas.getBoundingClientRect().left;
      return [x, view.low + ((x - LEFT) / this.pixels) * (view.high - view.low)];
    };
    place.addEventListener("pointerdown", (event) => {
      const [x, time] = timeAt(event), from = this.xOf(view.t0), to = this.xOf(view.t1);
      const narrow = to - from < 3 * EDGE;
      const edge = !narrow && Math.abs(x - from) < EDGE ? "t0" : !narrow && Math.abs(x - to) < EDGE ? "t1" : "";
      if (!edge && (x < from - 2 || x > to + 2)) {
        view.following = false;
        view.set(time - view.width / 2, time + view.width / 2);
      }
      held = { edge, time, t0: view.t0, t1: view.t1 };
      this.canvas.setPointerCapture(event.pointerId);
    });
    place.addEventListener("pointermove", (event) => {
      const [x, time] = timeAt(event);
      if (!held) {
        const near = Math.min(Math.abs(x - this.xOf(view.t0)), Math.abs(x - this.xOf(view.t1))) < EDGE;
        place.style.cursor = near ? "ew-resize" : "grab";
        return;
      }
      const by = time - held.time;
      view.following = false;
      if (held.edge === "t0") view.set(Math.min(held.t0 + by, held.t1 - 100), held.t1);
      else if (held.edge === "t1") view.set(held.t0, Math.max(held.t1 + by, held.t0 + 100));
      else view.set(held.t0 + by, held.t1 + by);
    });
    const release = () => (held = null);
    place.addEventListener("pointerup", release);
    place.addEventListener("pointercancel", release);
  }
}
