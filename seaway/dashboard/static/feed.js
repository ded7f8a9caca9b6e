// Speaks with the page's server: says what the browser has of the trace, and reads the columns that it lacks. A page that is
// a file (page_file.py) has no server, and its numbers are inside.

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
  if (document.getElementById("packed-numbers")) return read(spread(await unpacked("packed-numbers").arrayBuffer()));
  const answer = await ask("/look", { identity, cursor, hosts });
  return read(await answer.arrayBuffer());
}

// What the controller looked like at a moment; null if nobody knows.
export async function at(time) {
  return (await ask("/at", { time: Math.round(time) })).json();
}

function headOf(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  return [4 + size, JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)))];
}

// Makes doubles, in their place, of columns that are planes of bytes of differences: the lowest byte of all rows, then the
// next. A difference is a signed integer of 64 bits.
function spread(buffer) {
  const [start, head] = headOf(buffer);
  let from = start;
  for (const { columns, rows } of Object.values(head.tables)) {
    for (let column = 0; column < columns.length; column++) {
      const planes = new Uint8Array(buffer, from, 8 * rows).slice(), doubles = new Float64Array(buffer, from, rows);
      const half = (row, plane) => planes[row + plane * rows] | (planes[row + (plane + 1) * rows] << 8)
        | (planes[row + (plane + 2) * rows] << 16) | (planes[row + (plane + 3) * rows] << 24);
      let sum = 0;
      for (let row = 0; row < rows; row++) doubles[row] = sum += half(row, 4) * 2 ** 32 + (half(row, 0) >>> 0);
      from += 8 * rows;
    }
  }
  return buffer;
}

export function read(buffer) {
  const [start, head] = headOf(buffer);
  const found = {};
  let from = start;
  for (const [table, { columns, rows }] of Object.entries(head.tables)) {
    found[table] = { rows };
    for (const name of columns) {
      found[table][name] = new Float64Array(buffer, from, rows);
      from += 8 * rows;
    }
  }
  return { head, tables: found };
}
