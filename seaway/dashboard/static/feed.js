// Speaks with the page's server: says what the browser has of the trace, and reads the columns that it lacks.

const KEY = "seaway-key";

export class Refused extends Error {}

// The key stands behind the link's # and stays in this tab, so that the page can be loaded again.
export function key() {
  const found = new URLSearchParams(location.hash.slice(1)).get("key");
  try {
    if (found) sessionStorage.setItem(KEY, found);
    return found ?? sessionStorage.getItem(KEY) ?? "";
  } catch {
    return found ?? "";
  }
}

async function ask(path, body) {
  let answer;
  try {
    answer = await fetch(path, {
      method: "POST", body: JSON.stringify(body), headers: { Authorization: `Bearer ${key()}` },
      signal: AbortSignal.timeout(20_000),
    });
  } catch {
    throw new Error("the page's server does not answer: is `seaway dashboard` still running?");
  }
  if (answer.ok) return answer;
  const why = await answer.json().catch(() => ({ error: `status ${answer.status}` }));
  throw answer.status === 401 ? new Refused(why.error) : new Error(why.error);
}

// {head, columns(table, name)}: what is new
export async function look(identity, cursor, hosts) {
  const answer = await ask("/look", { identity, cursor, hosts });
  return read(await answer.arrayBuffer());
}

// What the controller looked like at a moment; null if nobody knows.
export async function at(time) {
  return (await ask("/at", { time: Math.round(time) })).json();
}

export function read(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  const found = {};
  let from = 4 + size;
  for (const [table, { columns, rows }] of Object.entries(head.tables)) {
    found[table] = { rows };
    for (const name of columns) {
      found[table][name] = new Float64Array(buffer, from, rows);
      from += 8 * rows;
    }
  }
  return { head, tables: found };
}
