// How much of the devices' time was used, and by whom: from the gangs in a span of time.

// {bins: client -> part of all devices' time in each bin, used: client -> device nanoseconds, total}
export function usage(store, t0, t1, count) {
  const { client, begin, finish } = store.tables.gangs.columns, bins = new Map(), used = new Map();
  const wide = (t1 - t0) / count, all = Math.max(1, store.groups.devices), high = store.last;
  for (const place of store.placeRows.keys()) {
    const size = store.groups.sizeOfPlace(place);
    store.between(place, t0, t1, (row) => {
      const from = Math.max(begin[row], t0), to = Math.min(finish[row], t1, high);
      if (!(to > from)) return;
      const who = client[row];
      used.set(who, (used.get(who) ?? 0) + size * (to - from));
      let mine = bins.get(who);
      if (!mine) bins.set(who, (mine = new Float64Array(count)));
      for (let bin = Math.floor((from - t0) / wide); bin < count; bin++) {
        const low = t0 + bin * wide, part = Math.min(to, low + wide) - Math.max(from, low);
        if (part <= 0) break;
        mine[bin] += (size * part) / (wide * all);
      }
    });
  }
  let total = 0;
  for (const each of used.values()) total += each;
  return { bins, used, total, wide };
}

// How many bins a span is cut into: several for each gang, or several gangs for each bin. With about one, whether a gang
// falls into one bin or two would look like a change of shares.
export function binsOf(store, t0, t1, most = 160) {
  const gangs = store.enteredAfter(t1) - store.enteredAfter(t0), each = gangs / Math.max(1, Math.min(64, store.placeRows.size));
  return 3 * each < most ? most : Math.max(40, Math.min(most, Math.round(each / 4)));
}

// By group of devices, the part of a span in which it was busy.
export function busyOfGroups(store, t0, t1) {
  const { begin, finish } = store.tables.gangs.columns, found = new Float64Array(store.groups.all.length), high = store.last;
  for (const [place, numbers] of store.groups.byPlace) {
    let busy = 0;
    store.between(place, t0, t1, (row) => {
      const part = Math.min(finish[row], t1, high) - Math.max(begin[row], t0);
      if (part > 0) busy += part;
    });
    for (const number of numbers) found[number] += busy / (t1 - t0);
  }
  return found;
}
