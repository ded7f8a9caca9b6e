// Wires the page: asks for what is new, again and again, and draws what follows from it.

import { Charts } from "./charts.js";
import { Colours, isDark } from "./colours.js";
import * as feed from "./feed.js";
import { Machines } from "./machines.js";
import { Overview } from "./overview.js";
import { Panels, tiles } from "./panels.js";
import { Timeline } from "./timeline.js";
import { TraceStore } from "./trace_store.js";
import { View } from "./view.js";
import { digits, duration, el, find, moment, named, percent, plural, show } from "./words.js";

const EVERY = 500; // milliseconds between two looks
const AWAY = 2000; // ... when nothing answers
const HOSTS = 5000; // ... between two descriptions of all hosts
const MOST = 20_000, MOST_SAVED = 400_000; // gangs that are taken at once
const options = new URLSearchParams(location.hash.slice(1));
const KINDS = { cluster: "cluster", simulation: "simulation", trace: "saved trace", log: "event log" };

const store = new TraceStore(), colours = new Colours(), tip = find("tip");
const view = new View(() => soon());
const timeline = new Timeline(find("timeline"), tip, store, view, colours);
const overview = new Overview(find("overview"), store, view, colours);
const charts = new Charts(
  { utilisation: find("utilisation"), shares: find("shares"), latency: find("latency"), used: find("used") }, store, view, colours);
const panels = new Panels(
  { queues: find("queues"), failures: find("failures"), clients: find("clients"), decisions: find("decisions") },
  store, view, colours, (client) => {
    charts.chosen = client;
    soon();
  });
const machines = new Machines(find("machines"), tip, store, view);
let head = null, then = { at: NaN, controller: null }, hostsAt = -Infinity, asked = 0;

// --- what is shown ------------------------------------------------------------------------------------------------

let waiting = false;
function soon() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    draw();
  });
}

// What the controller said of the moment that is shown; null if nobody knows.
function controllerNow() {
  if (!head) return null;
  if (head.kind === "log") {
    askThen();
    return then.controller;
  }
  return view.following ? head.view : null;
}

// Lets an event log's controller be replayed to the moment, one moment at a time.
let replaying = false;
async function askThen() {
  if (replaying || then.at === view.moment) return;
  replaying = true;
  const at = view.moment;
  try {
    then = { at, controller: await feed.at(at) };
  } catch (error) {
    notice(error.message);
    then = { at, controller: null };
  }
  replaying = false;
  soon();
}

function draw() {
  if (!head || document.hidden) return;
  const theme = isDark() ? "dark" : "light", controller = controllerNow();
  timeline.draw();
  overview.draw();
  const used = charts.draw(theme);
  const { waits, latencies } = panels.draw(controller, theme, used);
  machines.draw(head, controller ?? (view.following ? head.view : null), theme);
  drawTiles(controller, waits, latencies);
  drawLegend(used, theme);
  const live = view.live;
  find("follow").textContent = live ? "live" : view.following ? "❚❚" : "▶";
  find("follow").classList.toggle("on", view.following);
  find("moment").textContent = live && view.following
    ? `the last ${duration(view.seen)}` : view.seen === view.high - view.low
      ? `all ${duration(view.seen)}` : `${duration(view.seen)} up to ${moment(view.moment, view.width / 1000)}`;
  find("policy").textContent = [...new Set((controller?.islands ?? head.view?.islands ?? []).map((each) => each.policy))].join(", ");
}

function drawTiles(controller, waits, latencies) {
  const { t0 } = view, seconds = Math.max(1, view.seen) / 1e9;
  const gangs = store.enteredAfter(view.moment) - store.enteredAfter(t0);
  const stalls = waits.filter((each) => each.stalled).length;
  const waiting = waits.filter((each) => !each.stalled).reduce((sum, each) => sum + each.count, 0);
  const facts = [
    { name: "of devices' time used", value: percent(charts.used) },
    { name: "gangs a second", value: digits(gangs / seconds) },
    { name: "runs a second", value: digits(latencies.length / seconds) },
    { name: "median latency", value: latencies.length ? duration(latencies[latencies.length >> 1]) : "—" },
    { name: "waiting", value: waiting.toLocaleString("en") },
    { name: stalls === 1 ? "stall" : "stalls", value: `${stalls}`, kind: stalls ? "warn" : "" },
  ];
  const islands = controller?.islands ?? [];
  if (islands.length) {
    const hosts = store.groups.islands.reduce((sum, each) => sum + each.hosts, 0);
    const up = head.connected.reduce((sum, [low, high]) => sum + high - low, 0);
    if (head.kind !== "log") facts.push({ name: `of ${plural(hosts, "host")} connected`, value: up.toLocaleString("en"), kind: up < hosts ? "bad" : "" });
    facts.push({ name: "under way", value: islands.reduce((sum, each) => sum + each.under_way, 0).toLocaleString("en") });
  }
  tiles(find("tiles"), facts);
}

function drawLegend(used, theme) {
  let names;
  if (timeline.colouring === "client") names = [...used.used.keys()].sort((a, b) => a - b).map((each) => store.clientName(each));
  else {
    const seen = new Set(), { columns } = store.tables.gangs, kind = timeline.colouring;
    for (let row = store.enteredAfter(view.t0), end = Math.min(store.enteredAfter(view.t1), row + 20_000); row < end; row++) seen.add(store.word(columns[kind][row]));
    names = [...seen].sort();
  }
  const shown = names.slice(0, 24), more = names.length - shown.length, kept = timeline.reserved.length > 0;
  show(find("legend"), JSON.stringify([theme, timeline.colouring, shown, more, kept]), () => [
    ...shown.map((name) => el("span", { class: "key" }, named(name, colours.of(timeline.colouring, name)))),
    ...(more > 0 ? [el("span", { class: "quiet" }, `and ${more} more`)] : []),
    ...(kept ? [el("span", { class: "quiet" }, "striped: kept free by the policy")] : []),
  ]);
}

function notice(text) {
  find("notice").hidden = !text;
  find("notice").textContent = text;
}

function state(text, kind) {
  const pill = find("state");
  pill.textContent = text;
  pill.className = `pill ${kind}`;
}

// --- what is asked --------------------------------------------------------------------------------------------------

async function turn() {
  const known = store.identity, now = performance.now(), hosts = now - hostsAt > HOSTS;
  try {
    const found = await feed.look(known, store.cursor(options.get("most") ? Number(options.get("most")) : known || !head ? pageful() : MOST), hosts);
    if (hosts) hostsAt = now;
    const before = head;
    head = found.head;
    const live = !head.over;
    store.apply(found, live);
    if (before && before.identity !== head.identity && known) notice("The controller has started anew: its trace begins again.");
    else notice(head.notes.join(" "));
    if (before === null) document.title = `Seaway: ${head.title}`;
    find("title").textContent = head.title;
    for (const number of store.tables.clients.rows.keys()) colours.of("client", store.clientName(number)); // in their order
    view.extent(store.first, store.last, live || head.kind === "cluster");
    tellSaid();
    tellSkipped();
    if (head.kind === "trace" || head.kind === "log") state(KINDS[head.kind], "");
    else if (head.over) state(`${KINDS[head.kind]} has ended`, "");
    else state(head.kind === "simulation" ? "simulating" : "live", "good");
    soon();
    asked += 1;
    if (!head.over) setTimeout(turn, EVERY);
  } catch (error) {
    hostsAt = -Infinity;
    notice(error.message);
    state(error instanceof feed.Refused ? "refused" : "away", "bad");
    if (!(error instanceof feed.Refused)) setTimeout(turn, AWAY);
  }
  document.documentElement.dataset.looks = `${asked}`;
}

const pageful = () => (head && (head.kind === "trace" || head.kind === "log") ? MOST_SAVED : MOST);

function tellSaid() {
  find("said-card").hidden = !head.said.length;
  show(find("said"), JSON.stringify(head.said), () => head.said.map((line) => el("div", {}, line)));
}

function tellSkipped() {
  if (store.skipped && head.over) notice(`The trace has ${plural(store.skipped, "older gang")} that this page leaves out.`);
}

// --- what the user does -----------------------------------------------------------------------------------------------

function listen() {
  find("nearer").onclick = () => view.zoom(0.5);
  find("farther").onclick = () => view.zoom(2);
  find("earlier").onclick = () => view.move(-view.width / 3);
  find("later").onclick = () => view.move(view.width / 3);
  find("whole").onclick = () => view.whole();
  const follow = () => {
    view.follow(!view.following);
    if (view.following && !view.live) play(performance.now());
  };
  find("follow").onclick = follow;
  find("rows").onchange = (event) => {
    timeline.kind = event.target.value;
    soon();
  };
  find("colour").onchange = (event) => {
    timeline.colouring = event.target.value;
    soon();
  };
  find("shade").onchange = (event) => {
    machines.shade = event.target.value;
    soon();
  };
  find("theme").onclick = () => dress(isDark() ? "light" : "dark", true);
  addEventListener("keydown", (event) => {
    if (event.target instanceof HTMLSelectElement || event.ctrlKey || event.metaKey || event.altKey) return;
    const does = {
      " ": follow, "+": () => view.zoom(0.5), "=": () => view.zoom(0.5), "-": () => view.zoom(2),
      ArrowLeft: () => view.move(-view.width / 4), ArrowRight: () => view.move(view.width / 4), Home: () => view.whole(),
    }[event.key];
    if (!does || (event.key === " " && event.target instanceof HTMLButtonElement)) return;
    event.preventDefault();
    does();
  });
  document.addEventListener("visibilitychange", soon);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dress(theme(), false));
}

function theme() {
  try {
    const kept = localStorage.getItem("seaway-theme");
    if (kept) return kept;
  } catch {
    // a frame without storage
  }
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function dress(which, keep) {
  document.documentElement.dataset.theme = which;
  try {
    if (keep) localStorage.setItem("seaway-theme", which);
  } catch {
    // it lasts as long as the page
  }
  soon();
}

// What is over can be played: the right edge moves on, four seconds for what is in view.
function play(before) {
  requestAnimationFrame((now) => {
    if (!view.following || view.live) return;
    if (view.t1 >= view.high) {
      view.following = false;
      soon();
      return;
    }
    const by = (view.width * Math.min(100, now - before)) / 4000;
    view.set(view.t0 + by, view.t1 + by);
    play(now);
  });
}

dress(options.get("theme") ?? theme(), false);
if (options.has("framed")) document.body.classList.add("framed");
if (options.get("rows")) timeline.kind = find("rows").value = options.get("rows");
globalThis.seaway = { store, view, timeline }; // for the browser's console, and tests
listen();
turn();
