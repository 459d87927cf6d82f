'use strict';
// Where the time of requests goes: a column a moment, a row a doubling of time, as dark as its part of the column is large.

const Latency = (() => {
  const HEIGHT = 220, LEFT = 64, BOTTOM = 20, COLUMNS_MIN = 60;
  const NAMES = { queue: 'waited for their turn', service: 'were worked on', reply: 'waited to be sent' };

  const decoded = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const time = ns => {
    if (ns < 1e3) return `${Math.round(ns)} ns`;
    return ns < 1e6 ? `${Format.plain(ns / 1e3)} µs` : Format.seconds(ns / 1e9);
  };

  // What was told, together: the columns that are new come behind those that are known.
  class Story {
    constructor() { this.forget(); }

    forget() { Object.assign(this, { run: null, ends: [], receives: [], stages: {}, offset: 0 }); }

    get last() { return this.ends[this.ends.length - 1]; }

    add(told, most) {
      if (this.run !== told.run) {
        this.forget();
        this.run = told.run;
      }
      Object.assign(this, { rows: told.rows, first: told.first_row_ns, offset: told.time_ms - told.now_ms });
      const fresh = told.end_ms.findIndex(end => this.last === undefined || end > this.last);
      if (fresh < 0) return;
      this.ends.push(...told.end_ms.slice(fresh));
      this.receives.push(...told.receives.slice(fresh));
      for (const [name, stage] of Object.entries(told.stages)) {
        const own = (this.stages[name] ||= { columns: [], median: [], p99: [] });
        const bytes = decoded(stage.rows);
        for (let at = fresh; at < told.end_ms.length; at += 1) own.columns.push(bytes.subarray(at * told.rows, (at + 1) * told.rows));
        own.median.push(...stage.median_ns.slice(fresh));
        own.p99.push(...stage.p99_ns.slice(fresh));
      }
      const beyond = Math.max(0, this.ends.length - most);
      this.ends.splice(0, beyond);
      this.receives.splice(0, beyond);
      for (const own of Object.values(this.stages)) Object.values(own).forEach(list => list.splice(0, beyond));
    }

    // The last moment at which something was timed.
    get newest() { return this.receives.findLastIndex(count => count > 0); }

    // Of each stage what its times are: now, and the longest of all that is shown.
    summary() {
      const at = this.newest;
      return Object.entries(this.stages).map(([name, own]) => ({
        name, what: NAMES[name], median: at < 0 ? 0 : own.median[at], p99: at < 0 ? 0 : own.p99[at], worst: Math.max(0, ...own.p99),
      }));
    }
  }

  class Picture {
    constructor(canvas, seen, choice) {
      Object.assign(this, { canvas, seen, choice, story: new Story(), at: null });
      choice.addEventListener('change', () => { this.draw(); this.tell(); });
      canvas.addEventListener('pointermove', event => this.point(event));
      canvas.addEventListener('pointerleave', () => this.focus(null));
      canvas.addEventListener('keydown', event => this.key(event));
      canvas.addEventListener('blur', () => this.focus(null));
    }

    show(told, most) {
      this.story.add(told, most);
      this.draw();
      const parts = this.story.summary().map(row => `${row.name} median ${time(row.median)}, 99 % up to ${time(row.p99)}`);
      this.canvas.setAttribute('aria-label', `Times of requests, newest: ${this.story.newest < 0 ? 'nothing was timed' : parts.join('; ')}`);
    }

    // The row of a time, with its part: for lines.
    height(ns, from, to) {
      const row = Math.log2(Math.max(1, ns) / this.story.first) + 1;
      return (HEIGHT - BOTTOM) * (1 - (Math.min(to, Math.max(from, row)) - from) / (to - from));
    }

    draw() {
      const { story, canvas } = this, own = story.stages[this.choice.value];
      const width = Math.max(240, canvas.clientWidth), scale = window.devicePixelRatio || 1;
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(HEIGHT * scale);
      canvas.style.height = `${HEIGHT}px`;
      const ctx = canvas.getContext('2d');
      ctx.scale(scale, scale);
      ctx.font = '12px system-ui, sans-serif';
      ctx.fillStyle = colour('--soft');
      if (!own || story.newest < 0) {
        ctx.fillText('nothing was timed yet', LEFT, HEIGHT / 2);
        return;
      }
      // The same rows for all three, so that they can be compared.
      const used = Object.values(story.stages).flatMap(stage => stage.columns.flatMap(column => [column.findIndex(part => part > 0), column.findLastIndex(part => part > 0)])).filter(row => row >= 0);
      const from = Math.min(...used), to = Math.max(...used) + 1, tall = (HEIGHT - BOTTOM) / (to - from);
      this.wide = (width - LEFT) / Math.max(COLUMNS_MIN, story.ends.length);
      ctx.textAlign = 'right';
      const every = Math.ceil((to - from) / 9);
      for (let row = from; row <= to; row += every) ctx.fillText(time(story.first * 2 ** (row - 1)), LEFT - 8, (to - row) * tall + (row === to ? 10 : 4));
      ctx.textAlign = 'left';
      const clock = at => Charts.clock((story.ends[at] + story.offset) / 1000);
      ctx.fillText(clock(0), LEFT, HEIGHT - 4);
      if (story.ends.length * this.wide > 160) {
        ctx.textAlign = 'right';
        ctx.fillText(clock(story.ends.length - 1), LEFT + story.ends.length * this.wide, HEIGHT - 4);
      }
      ctx.fillStyle = colour('--c0');
      own.columns.forEach((column, at) => column.forEach((part, row) => {
        if (part === 0) return;
        ctx.globalAlpha = 0.12 + 0.88 * part / 255;
        ctx.fillRect(LEFT + at * this.wide, (to - row - 1) * tall, Math.max(1, this.wide - 0.5), tall - 0.5);
      }));
      ctx.globalAlpha = 1;
      for (const [values, ink, dash] of [[own.median, '--ink', []], [own.p99, '--c1', [5, 3]]]) {
        ctx.strokeStyle = colour(ink);
        ctx.lineWidth = 1.5;
        ctx.setLineDash(dash);
        ctx.beginPath();
        let pen = false;
        values.forEach((ns, at) => {
          if (story.receives[at] === 0) { pen = false; return; }
          const [x, y] = [LEFT + (at + 0.5) * this.wide, this.height(ns, from, to)];
          if (pen) ctx.lineTo(x, y); else ctx.moveTo(x - this.wide / 2, y);
          pen = true;
          ctx.lineTo(x + this.wide / 2, y);
        });
        ctx.stroke();
      }
      ctx.setLineDash([]);
      if (this.at !== null && this.at < story.ends.length) {
        ctx.strokeStyle = colour('--ink');
        ctx.strokeRect(LEFT + this.at * this.wide, 0.5, Math.max(2, this.wide), HEIGHT - BOTTOM - 1);
      }
    }

    focus(at) {
      if (at === this.at) return;
      this.at = at;
      this.tell();
      this.draw();
    }

    tell() {
      const { story, at } = this, own = story.stages[this.choice.value];
      if (at === null || !own || at >= story.ends.length) { this.seen.textContent = '\u00a0'; return; }
      const when = Charts.clock((story.ends[at] + story.offset) / 1000), count = story.receives[at];
      this.seen.textContent = count === 0 ? `${when}: nothing was timed` : `${when}, ${this.choice.value}: median ${time(own.median[at])}, 99 % up to ${time(own.p99[at])}, of ${Format.whole(count)} receives`;
    }

    point(event) {
      if (!this.wide) return;
      const at = Math.floor((event.clientX - this.canvas.getBoundingClientRect().left - LEFT) / this.wide);
      this.focus(at >= 0 && at < this.story.ends.length ? at : null);
    }

    key(event) {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], last = this.story.ends.length - 1;
      if (event.key === 'Escape') this.focus(null);
      else if (step && last >= 0) this.focus(Math.min(last, Math.max(0, this.at === null ? last : this.at + step)));
      else return;
      event.preventDefault();
    }
  }

  return { Picture, time };
})();
