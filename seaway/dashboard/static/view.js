// What span of time is shown, and the moves that change it: the timeline, its overview and all panels follow one view.
// The right edge is the moment that the panels speak of.

export class View {
  constructor(changed) {
    this.changed = changed;
    this.low = 0; // the extent of all there is
    this.high = 1;
    this.t0 = 0;
    this.t1 = 1;
    this.live = false; // whether more will come
    this.following = true; // the right edge is now; or, of what is over, it moves on as in play
    this.span = 5e9; // while following
  }

  get width() {
    return this.t1 - this.t0;
  }

  extent(low, high, live) {
    const fresh = this.high <= 1;
    this.low = Number.isFinite(low) ? low : 0;
    this.high = Math.max(high, this.low + 1);
    this.live = live;
    if (fresh) this.span = live ? Math.min(5e9, Math.max(this.high - this.low, 1e6)) : this.high - this.low;
    if (fresh && !live) {
      this.following = false;
      this.whole();
    } else if (this.following && live) this.toNow();
  }

  toNow() {
    this.t1 = this.high;
    this.t0 = this.high - this.span;
  }

  set(t0, t1) {
    const least = 20, most = 1.2 * (this.high - this.low) + 1000;
    const width = Math.min(Math.max(t1 - t0, least), most);
    const middle = (t0 + t1) / 2;
    t0 = Math.min(Math.max(middle - width / 2, this.low - width / 2), this.high - width / 2);
    this.t0 = t0;
    this.t1 = t0 + width;
    this.span = width;
    this.changed();
  }

  zoom(factor, at = this.following ? this.t1 : (this.t0 + this.t1) / 2) {
    if (this.following && this.live) { // the right edge stays now
      this.span = Math.min(Math.max(this.span * factor, 1000), Math.max(this.high - this.low, 1e6));
      this.toNow();
      this.changed();
    } else this.set(at - (at - this.t0) * factor, at + (this.t1 - at) * factor);
  }

  move(by) {
    if (this.live) this.following = false;
    this.set(this.t0 + by, this.t1 + by);
  }

  whole() {
    this.following = this.following && this.live;
    const edge = 0.01 * (this.high - this.low);
    if (this.following) {
      this.span = this.high - this.low;
      this.toNow();
      this.changed();
    } else this.set(this.low - edge, this.high + edge);
  }

  follow(on) {
    this.following = on;
    if (on && this.live) this.toNow();
    if (on && !this.live && this.t1 >= this.high) { // play it again
      const width = Math.min(this.width, (this.high - this.low) / 4);
      this.set(this.low, this.low + width);
    }
    this.changed();
  }

  // How much is shown of all there is.
  get seen() {
    return Math.max(0, Math.min(this.t1, this.high) - Math.max(this.t0, this.low));
  }

  // The moment that panels speak of.
  get moment() {
    return Math.min(this.t1, this.high);
  }
}

// Round distances for marks on an axis: about `count` of them.
export function stepOf(width, count) {
  const rough = width / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
}
