// Which colour a name has: Okabe and Ito's first, which people with any colour vision can tell apart, as in all of
// Seaway's figures. Names beyond them get hues far from each other, and then grey.

const LIGHT = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#D9CB1E"];
const DARK = ["#3D9BE0", "#F0B232", "#1FB98A", "#E08BBD", "#86D0FA", "#F0793A", "#EFE36A"];
const MORE = 17; // names that get a hue of their own, beyond those
const GREY = { light: "#9A9A9A", dark: "#7D858E" };

export const isDark = () => document.documentElement.dataset.theme === "dark";

export class Colours {
  constructor() {
    this.places = new Map(); // a name's place in the order of appearance, by what is coloured
  }

  of(kind, name) {
    let names = this.places.get(kind);
    if (!names) this.places.set(kind, (names = new Map()));
    let place = names.get(name);
    if (place === undefined) names.set(name, (place = names.size));
    return colourAt(place);
  }
}

function colourAt(place) {
  const known = isDark() ? DARK : LIGHT;
  if (place < known.length) return known[place];
  if (place >= known.length + MORE) return isDark() ? GREY.dark : GREY.light;
  const hue = (place * 137.508 + 20) % 360;
  return fromHsl(hue, 0.42, isDark() ? 0.66 : 0.5);
}

function fromHsl(hue, saturation, lightness) {
  const part = (n) => {
    const k = (n + hue / 30) % 12, a = saturation * Math.min(lightness, 1 - lightness);
    return Math.round(255 * (lightness - a * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return `#${[part(0), part(8), part(4)].map((each) => each.toString(16).padStart(2, "0")).join("")}`;
}

const parts = new Map();

// [red, green, blue] of #rrggbb
export function rgb(colour) {
  let found = parts.get(colour);
  if (!found) {
    found = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    parts.set(colour, found);
  }
  return found;
}

export const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Black or white, whichever can be read on the colour.
export function inkOn(colour) {
  const [red, green, blue] = rgb(colour);
  return (0.299 * red + 0.587 * green + 0.114 * blue) / 255 > 0.55 ? "#14171a" : "#ffffff";
}
