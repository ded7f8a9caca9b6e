// The tables of the page: what waits, what failed, the clients, the policy's decisions.

import { decisionsOf, waitsOf } from "./waiting.js";
import { cell, duration, el, named, percent, quantile, show, spans, table } from "./words.js";

const FAILURES = 30, DECISIONS = 14, WAITS = 60;

export class Panels {
  constructor(places, store, view, colours, choose) {
    Object.assign(this, { places, store, view, colours, choose });
    this.chosen = null;
  }

  colourOf(name) {
    return this.colours.of("client", name);
  }

  draw(controller, theme, usage) {
    const moment = this.view.moment, waits = waitsOf(this.store, this.view, controller);
    this.#queues(waits.filter((each) => !each.stalled), moment, theme);
    this.#failures(waits.filter((each) => each.stalled), controller, moment, theme);
    const latencies = this.#clients(controller, moment, theme, usage);
    this.#decisions(moment, theme, this.view.live ? controller?.queues ?? [] : []);
    return { waits, latencies };
  }

  #queues(waits, moment, theme) {
    const rows = waits.slice(0, WAITS);
    const key = JSON.stringify([theme, rows.map((each) => [each.client, each.program, each.step, each.reason, each.count, each.ahead, each.keptFor, about(moment - each.since)])]);
    show(this.places.queues, key, () => {
      if (!rows.length) return el("div", { class: "empty" }, "Nothing waits.");
      return table([["client"], ["what"], ["why"], ["", "n"], ["for", "n"]], rows.map((each) => el("tr", {},
        cell(each.client ? named(each.client, this.colourOf(each.client)) : ""),
        cell(`${each.program}${each.step && each.step !== each.program ? ` · ${each.step}` : ""}`, "whole"),
        cell(el("span", {}, each.reason, this.#ahead(each), each.where && this.store.groups.islands.length > 1 ? el("span", { class: "quiet" }, ` (${each.where})`) : "")),
        cell(each.count > 1 ? `×${each.count.toLocaleString("en")}` : "", "n"),
        cell(duration(moment - each.since), "n"))));
    });
  }

  // Whose gangs those are that are ahead.
  #ahead({ ahead, keptFor }) {
    if (keptFor.length) return el("div", { class: "quiet names" }, "kept for", ...keptFor.map((client) => named(this.store.clientName(client), this.colourOf(this.store.clientName(client)))));
    if (!ahead.length) return "";
    const shown = ahead.slice(0, 6).map(([client, count]) => {
      const name = this.store.clientName(client);
      return named(`${name} ${count}`, this.colourOf(name));
    });
    return el("div", { class: "quiet names" }, ...shown);
  }

  #failures(stalls, controller, moment, theme) {
    const { columns } = this.store.tables.runs, failed = this.#failedRuns(moment);
    const refused = controller?.refused ?? [];
    const key = JSON.stringify([theme, stalls.map((each) => [each.client, each.program, each.step, each.reason, each.hosts, about(moment - each.since)]),
      failed.map(({ row, count }) => [columns.run[row], count, about(moment - columns.ended[row])]), refused.map((each) => [each.agent, each.reason])]);
    show(this.places.failures, key, () => {
      if (!stalls.length && !failed.length && !refused.length) return el("div", { class: "empty" }, "Nothing stalls, and nothing has failed.");
      const rows = stalls.map((each) => this.#trouble("stalls", "warn", each.client, each.program, each.step,
        `${each.reason}${each.hosts?.length ? `; hosts ${spans(each.hosts)}` : ""}${each.where ? `; island ${each.where}` : ""}`, `for ${duration(moment - each.since)}`));
      for (const { row, count } of failed) {
        const node = this.store.word(columns.node[row]), host = columns.host[row];
        rows.push(this.#trouble(this.store.word(columns.code[row]), "bad", this.store.clientName(columns.client[row]),
          this.store.word(columns.program[row]), node, `${this.store.word(columns.cause[row])}${host >= 0 ? `; host ${host}` : ""}`,
          `${count > 1 ? `×${count.toLocaleString("en")}, ` : ""}${duration(moment - columns.ended[row])} ago`));
      }
      for (const each of refused) rows.push(this.#trouble("refused", "warn", "", each.agent, "", each.reason, `${duration(moment - each.at)} ago`));
      return table([["what"], ["of"], ["why"], ["", "n"]], rows);
    });
  }

  // Runs that had failed, the latest first; those of one client and program with one cause are one line: [{row, count}]
  #failedRuns(moment) {
    const { n, columns } = this.store.tables.runs, found = new Map();
    for (let row = n - 1; row >= 0 && found.size < FAILURES; row--) {
      if (!(columns.code[row] >= 0 && columns.ended[row] >= 0 && columns.ended[row] <= moment)) continue;
      const key = [columns.client, columns.program, columns.code, columns.cause, columns.node, columns.host].map((each) => each[row]).join();
      const known = found.get(key);
      if (!known) found.set(key, { row, count: 1 });
      else {
        known.count += 1;
        if (columns.ended[row] > columns.ended[known.row]) known.row = row;
      }
    }
    return [...found.values()].sort((a, b) => columns.ended[b.row] - columns.ended[a.row]);
  }

  #trouble(what, kind, client, program, step, why, when) {
    return el("tr", {}, cell(el("b", { class: `${kind} name` }, what)),
      cell(el("div", {}, client ? named(client, this.colourOf(client)) : "", el("div", { class: "quiet whole" }, `${program}${step && step !== program ? ` · ${step}` : ""}`))),
      cell(why), cell(when, "n"));
  }

  #clients(controller, moment, theme, { used, total }) {
    const { n, columns } = this.store.tables.runs, { t0, t1 } = this.view, by = new Map();
    const of = (client) => {
      if (!by.has(client)) by.set(client, { latencies: [], failed: 0, open: 0 });
      return by.get(client);
    };
    for (const [number, row] of this.store.tables.clients.rows) {
      const { opened, closed } = this.store.tables.clients.columns;
      if (opened[row] <= t1 && (closed[row] < 0 || closed[row] > t0)) of(number);
    }
    for (let row = 0; row < n; row++) {
      const ended = columns.ended[row];
      if (columns.submitted[row] <= moment && (ended < 0 || ended > moment)) of(columns.client[row]).open += 1;
      else if (ended > t0 && ended <= t1) {
        const mine = of(columns.client[row]);
        if (columns.code[row] >= 0) mine.failed += 1;
        else mine.latencies.push(ended - columns.submitted[row]);
      }
    }
    const rows = [...by].sort(([a], [b]) => a - b);
    for (const [, each] of rows) each.latencies = Float64Array.from(each.latencies).sort();
    const key = JSON.stringify([theme, this.chosen, rows.map(([client, each]) => [client, each.open, each.failed, each.latencies.length, each.latencies[0], each.latencies.at(-1), Math.round((1e4 * (used.get(client) ?? 0)) / total)])]);
    show(this.places.clients, key, () => {
      if (!rows.length) return el("div", { class: "empty" }, "No client in this span.");
      const heads = [["client"], ["weight", "n"], ["share", "n"], ["under way", "n"], ["ended", "n"], ["p50", "n"], ["p90", "n"], ["p99", "n"], ["failed", "n"]];
      return table(heads, rows.map(([client, each]) => this.#client(client, each, (used.get(client) ?? 0) / total)));
    });
    return sorted(rows.map(([, each]) => each.latencies));
  }

  #client(client, { latencies, failed, open }, share) {
    const about = this.store.clientOf(client) ?? { name: "unknown client", weight: 0 };
    const part = (which) => cell(duration(quantile(latencies, which)), "n");
    const picked = this.chosen === client;
    return el("tr", {
      class: picked ? "pick picked" : "pick", title: picked ? "show the runs of all clients" : "show the runs of this client",
      onclick: () => {
        this.chosen = picked ? null : client;
        this.choose(this.chosen);
      },
    }, cell(named(about.name, this.colourOf(about.name))), cell(`${about.weight}`, "n"), cell(percent(share), "n"), cell(`${open}`, "n"),
      cell(latencies.length.toLocaleString("en"), "n"), part(0.5), part(0.9), part(0.99), cell(failed ? el("b", { class: "bad" }, `${failed}`) : "0", "n"));
  }

  #decisions(moment, theme, queues) {
    const found = decisionsOf(this.store, moment, DECISIONS, queues), { columns } = this.store.tables.gangs;
    const key = JSON.stringify([theme, found.map((each) => [columns.seq[each.row], each.over])]);
    show(this.places.decisions, key, () => {
      if (!found.length) return el("div", { class: "empty" }, "No gang has entered an order yet.");
      const several = this.store.groups.islands.length > 1;
      return table([["ago", "n"], ["entered"], ["after", "n"], ["instead of"]], found.map(({ row, over }) => {
        const name = this.store.clientName(columns.client[row]);
        return el("tr", {},
          cell(duration(moment - columns.entered[row]), "n"),
          cell(el("span", {}, named(name, this.colourOf(name)), el("span", { class: "quiet" }, ` ${this.store.word(columns.step[row])}${several ? ` on ${this.store.groups.islands[columns.island[row]]?.name}` : ""}`))),
          cell(columns.ready[row] >= 0 ? duration(columns.entered[row] - columns.ready[row]) : "", "n"),
          cell(over.length ? el("span", { class: "names" }, ...over.slice(0, 5).map(([other, count]) => named(count > 1 ? `${other} ×${count}` : other, this.colourOf(other)))) : el("span", { class: "quiet" }, "no other was ready"), ""));
      }));
    });
  }
}

function sorted(parts) {
  const all = new Float64Array(parts.reduce((sum, each) => sum + each.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all.sort();
}

// A time as it is shown, so that a table is not made anew for less.
const about = (ns) => duration(ns);

export function tiles(place, facts) {
  show(place, JSON.stringify(facts), () => facts.map(({ name, value, kind }) => el("div", { class: `tile ${kind ?? ""}` }, el("b", {}, value), el("small", {}, name))));
}
