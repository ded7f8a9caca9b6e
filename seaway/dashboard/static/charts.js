// Utilisation over time, the clients' shares, and the latency of runs. uPlot draws lines, areas and points.

import { style } from "./colours.js";
import { binsOf, usage } from "./usage.js";
import { duration, el, moment, named, percent, show } from "./words.js";

const POINTS = 4000;
const ROUND = [-9, -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15].flatMap((power) => [1, 2, 5].map((each) => each * 10 ** power));

// A uPlot chart that is made anew when its series change, and fed otherwise.
class Chart {
  constructor(place, height) {
    Object.assign(this, { place, height, made: null, key: "" });
    new ResizeObserver(() => this.made?.setSize({ width: place.clientWidth, height })).observe(place);
  }

  draw(key, options, data) {
    if (!this.place.clientWidth) return;
    if (this.key !== key || !this.made) {
      this.made?.destroy();
      this.key = key;
      const cursor = { drag: { setScale: false, x: false, y: false }, points: { show: false }, y: false };
      this.made = new uPlot(
        { width: this.place.clientWidth, height: this.height, legend: { show: false }, cursor, padding: [8, 12, 0, 0], ...options },
        data, this.place,
      );
    } else this.made.setData(data);
  }
}

const axis = (more) => ({
  stroke: style("--quiet"), grid: { stroke: style("--faint"), width: 1 }, ticks: { show: false },
  font: "11px system-ui, 'DejaVu Sans', sans-serif", ...more,
});

const timeAxis = (view) => axis({
  grid: { show: false }, space: 90, size: 26, incrs: ROUND,
  values: (_, marks) => {
    const zero = view.live && view.following ? view.high : 0, step = marks[1] - marks[0] || view.width;
    return marks.map((at) => (zero && Math.abs(at - zero) < step / 2 ? "now" : moment(at - zero, step)));
  },
  splits: (_, __, low, high, step) => {
    const zero = view.live && view.following ? view.high : 0, found = [];
    for (let at = Math.ceil((low - zero) / step) * step; at <= high - zero; at += step) found.push(at + zero);
    return found;
  },
});

// Of the marks of an axis of powers: 1, 2 and 5 of each ten, or only 1 where there are many tens.
function rounder(marks) {
  const known = marks.filter((each) => each > 0), wide = Math.max(...known) / Math.min(...known) > 200;
  return marks.map((each) => {
    const first = Math.round(each / 10 ** Math.floor(Math.log10(each) + 1e-9));
    return first === 1 || (!wide && (first === 2 || first === 5)) ? each : null;
  });
}

export class Charts {
  constructor(places, store, view, colours) {
    Object.assign(this, { places, store, view, colours });
    this.utilisation = new Chart(places.utilisation, 200);
    this.latency = new Chart(places.latency, 170);
    this.chosen = null;
  }

  colourOf(client) {
    return this.colours.of("client", this.store.clientName(client));
  }

  draw(theme) {
    const { t0, t1 } = this.view;
    const found = usage(this.store, t0, t1, binsOf(this.store, t0, t1));
    this.#utilisation(found, theme);
    this.#shares(found);
    this.#latency(theme);
    return found;
  }

  #utilisation({ bins, total, wide }, theme) {
    const { t0, t1 } = this.view, count = Math.round((t1 - t0) / wide), clients = [...bins.keys()].sort((a, b) => a - b);
    const times = Float64Array.from({ length: count + 1 }, (_, bin) => t0 + bin * wide);
    const sums = new Float64Array(count + 1), areas = [];
    for (const client of clients) {
      const parts = bins.get(client);
      for (let bin = 0; bin <= count; bin++) sums[bin] += 100 * parts[Math.min(bin, count - 1)];
      areas.push(Float64Array.from(sums, (each) => Math.min(100, each)));
    }
    areas.reverse(); // the highest first, so that each covers the one before up to its own
    const names = [...clients].reverse();
    const step = uPlot.paths.stepped({ align: 1 });
    const series = [{}, ...names.map((client) => ({
      stroke: this.colourOf(client), fill: this.colourOf(client), width: 0, paths: step, points: { show: false },
    }))];
    this.utilisation.draw(`${theme}/${clients.join()}`, {
      series, scales: { x: { time: false, range: () => [this.view.t0, this.view.t1] }, y: { range: [0, 100] } },
      axes: [timeAxis(this.view), axis({ size: 44, values: (_, marks) => marks.map((each) => `${each}%`) })],
    }, [times, ...areas]);
    const seen = Math.max(1, this.view.seen);
    this.used = total / (seen * Math.max(1, this.store.groups.devices));
    this.places.used.textContent = `${percent(this.used)} of all devices' time in ${duration(seen)}`;
  }

  #shares({ used, total }) {
    const rows = [...used].map(([client, time]) => ({ ...(this.store.clientOf(client) ?? { name: "unknown", weight: 0 }), client, got: time / total }))
      .sort((a, b) => a.client - b.client);
    const weights = rows.reduce((sum, each) => sum + each.weight, 0);
    const most = Math.max(0.01, ...rows.map((each) => Math.max(each.got, each.weight / weights || 0)));
    const key = JSON.stringify([rows.map((each) => [each.name, each.weight, Math.round(1000 * each.got)]), style("--ink")]);
    show(this.places.shares, key, () => {
      if (!rows.length) return el("div", { class: "empty" }, "Nobody used a device in this span.");
      return el("div", { class: "scroll" }, ...rows.map(({ name, weight, got, client }) => {
        const asked = weight / weights, colour = this.colourOf(client);
        return el("div", { class: "share", title: `${name}: weight ${weight}` }, named(name, colour),
          el("div", { class: "track" },
            el("div", { class: "got", style: { width: `${(100 * got) / most}%`, background: colour } }),
            el("div", { class: "asked", style: { left: `${(100 * asked) / most}%` } })),
          el("div", { class: "n" }, percent(got), el("span", { class: "quiet" }, ` of ${percent(asked)}`)));
      }));
    });
  }

  // Runs that ended in the span, a point each.
  #latency(theme) {
    const { n, columns } = this.store.tables.runs, { t0, t1 } = this.view, rows = [];
    for (let row = 0; row < n; row++) {
      if (!(columns.ended[row] > t0 && columns.ended[row] <= t1)) continue;
      if (this.chosen === null || columns.client[row] === this.chosen) rows.push(row);
    }
    const every = Math.max(1, rows.length / POINTS), points = []; // some of them, from all of the span
    for (let at = 0; at < rows.length; at += every) {
      const row = rows[Math.floor(at)];
      points.push([columns.ended[row], (columns.ended[row] - columns.submitted[row]) / 1e6, columns.client[row]]);
    }
    this.places.latency.hidden = !points.length;
    if (!points.length) return;
    points.sort((a, b) => a[0] - b[0]);
    const clients = [...new Set(points.map((each) => each[2]))].sort((a, b) => a - b);
    const times = points.map((each) => each[0]);
    const lines = clients.map((client) => points.map((each) => (each[2] === client ? each[1] : null)));
    this.latency.draw(`${theme}/${clients.join()}`, {
      scales: { x: { time: false, range: () => [this.view.t0, this.view.t1] }, y: { distr: 3 } },
      series: [{}, ...clients.map((client) => ({
        stroke: this.colourOf(client), paths: () => null,
        points: { show: true, size: 5, fill: this.colourOf(client), width: 0 },
      }))],
      axes: [timeAxis(this.view), axis({ size: 62, space: 34, filter: (_, marks) => rounder(marks), grid: { show: false }, values: (_, marks) => marks.map((each) => (each === null ? "" : duration(each * 1e6))) })],
    }, [times, ...lines]);
  }
}
