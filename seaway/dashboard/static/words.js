// Numbers as people read them, and elements of the page. Names come from users and may be hostile: they only ever become
// text nodes here, and no module makes HTML of a string.

export function el(tag, about = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(about)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "style") Object.assign(made.style, value);
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...inside.filter((each) => each !== undefined && each !== null));
  return made;
}

export const find = (id) => document.getElementById(id);

// Replaces what an element has, unless it would be the same: so that a selection of text outlives an update.
export function show(place, key, make) {
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  const made = make();
  place.replaceChildren(...(Array.isArray(made) ? made : [made]));
}

export function table(heads, rows) {
  const head = heads.map(([text, kind]) => el("th", { class: kind }, text));
  return el("div", { class: "scroll" },
    el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows)));
}

export const cell = (what, kind) => el("td", { class: kind }, what);
export const swatch = (colour) => el("span", { class: "swatch", style: { background: colour } });
export const named = (name, colour) =>
  el("span", { class: "name", title: name }, ...(colour ? [swatch(colour)] : []), name || "—");

const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

// A length of time: three digits that matter.
export function duration(ns) {
  if (!Number.isFinite(ns)) return "—";
  const sign = ns < 0 ? "−" : "", size = Math.abs(ns);
  if (size >= 3600e9) return `${sign}${Math.floor(size / 3600e9)} h ${String(Math.floor(size / 60e9) % 60).padStart(2, "0")} m`;
  if (size >= 60e9) return `${sign}${Math.floor(size / 60e9)} m ${String(Math.floor(size / 1e9) % 60).padStart(2, "0")} s`;
  for (const [unit, name] of UNITS) {
    if (size >= unit || unit === 1) return `${sign}${digits(size / unit)} ${name}`;
  }
  return "0";
}

export function digits(value) {
  if (value === 0) return "0";
  if (value >= 100) return Math.round(value).toLocaleString("en");
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

// A moment since the trace began, as exact as marks that are `step` apart need it.
export function moment(ns, step) {
  const size = Math.abs(ns), [unit, name] = size >= 1e9 || step >= 1e8 ? UNITS[0] : size >= 1e6 || step >= 1e5 ? UNITS[1] : UNITS[2];
  const places = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / unit) - 1e-9)));
  return `${(ns / unit).toFixed(places).replace("-", "−")} ${name}`;
}

export const percent = (part) => (Number.isFinite(part) ? `${(100 * part).toFixed(part < 0.1 ? 1 : 0)}%` : "—");

export function bytes(count) {
  for (const [unit, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (count >= unit) return `${digits(count / unit)} ${name}`;
  }
  return `${count} B`;
}

export const plural = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;

// [[0, 4], [8, 9]] as 0–3, 8
export function spans(pairs, most = 4) {
  const said = pairs.slice(0, most).map(([low, high]) => (high - low === 1 ? `${low}` : `${low}–${high - 1}`));
  return said.join(", ") + (pairs.length > most ? ", …" : "");
}

export const sizeOf = (pairs) => pairs.reduce((sum, [low, high]) => sum + high - low, 0);

export function quantile(sorted, part) {
  if (!sorted.length) return NaN;
  const at = part * (sorted.length - 1), low = Math.floor(at);
  return sorted[low] + (at - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
}
