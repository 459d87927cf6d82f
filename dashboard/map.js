'use strict';
// The map of spans: a cell is one of them, or several.

const SpanMap = (() => {
  const FREE = 0, INDEX = 255, DRAINS = 1, MIXED = 2;
  const DUE = ['never, as far as is known', 'within 10 s', 'within 1 min', 'within 10 min', 'within 1 h', 'within a day', 'later'];
  const AGES = [[10, 'less than 10 s'], [60, 'less than 1 min'], [600, 'less than 10 min'], [3600, 'less than 1 h'], [86400, 'less than a day'], [Infinity, 'a day and more']];

  const seconds = step => 2 ** (step / 8) - 1;
  const decoded = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const paper = () => getComputedStyle(document.documentElement).getPropertyValue('--paper').trim();
  const isDark = () => paper() === '#171716';

  // By the size of its chunks: from violet to orange, and from dark to light, so that it is seen in grey, too.
  const place = bytes => Math.min(1, Math.max(0, Math.log2(bytes / 16) / 10));
  const colourOf = (owner, chunkBytes) => {
    if (owner === FREE) return 'transparent';
    const dark = isDark();
    if (owner === INDEX) return dark ? 'hsl(40 3% 60%)' : 'hsl(40 3% 45%)';
    const at = place(chunkBytes[owner] || 16);
    const light = dark ? 52 + 26 * at : 28 + 20 * at;
    return `hsl(${(265 - 240 * at + 360) % 360} 62% ${light}%)`;
  };
  const nameOf = (owner, chunkBytes) => {
    if (owner === FREE) return 'free';
    if (owner === INDEX) return 'index';
    return `${Format.whole(chunkBytes[owner])} B chunks`;
  };

  class Picture {
    constructor(canvas, seen, order, shade) {
      Object.assign(this, { canvas, seen, order, shade, cells: [], at: null });
      order.addEventListener('change', () => this.arrange());
      shade.addEventListener('change', () => this.draw());
      canvas.addEventListener('pointermove', event => this.point(event));
      canvas.addEventListener('pointerleave', () => this.focus(null));
      canvas.addEventListener('keydown', event => this.key(event));
      canvas.addEventListener('blur', () => this.focus(null));
    }

    show(map) {
      this.map = map;
      const bytes = decoded(map.cells);
      this.all = [];
      for (let at = 0; at < bytes.length; at += 4) {
        this.all.push({ number: at / 4, owner: bytes[at], fill: bytes[at + 1], age: bytes[at + 2], due: bytes[at + 3] >> 4, drains: Boolean(bytes[at + 3] & DRAINS), mixed: Boolean(bytes[at + 3] & MIXED) });
      }
      const unused = Math.floor(Math.max(0, map.spans_allowed - map.spans) / map.spans_per_cell);
      for (let n = 0; n < unused; n += 1) this.all.push({ number: this.all.length, owner: FREE, fill: 0, age: 0, due: 0, unused: true });
      this.arrange();
      const owners = map.owners.map(({ owner, spans }) => `${nameOf(owner, map.chunk_bytes)} ${Format.whole(spans)}`);
      this.canvas.setAttribute('aria-label', `Map of ${Format.whole(map.spans)} spans: ${owners.join(', ')}`);
    }

    arrange() {
      if (!this.map) return;
      const rank = cell => cell.owner === FREE ? 1000 : cell.owner;
      this.cells = this.order.value === 'address' ? this.all
        : [...this.all].sort((one, other) => rank(one) - rank(other) || other.age - one.age || one.number - other.number);
      this.draw();
    }

    // 0 … 1: how much of the colour is seen.
    strength(cell) {
      switch (this.shade.value) {
        case 'age': return 0.2 + 0.8 * Math.min(1, cell.age / 136);
        case 'due': return cell.due === 0 ? 0.15 : 1 - (cell.due - 1) * 0.15;
        default: return 0.2 + 0.8 * cell.fill / 255;
      }
    }

    draw() {
      if (!this.map) return;
      const width = Math.max(200, this.canvas.clientWidth), scale = window.devicePixelRatio || 1;
      this.side = Math.max(4, Math.min(14, Math.floor(Math.sqrt(width * 260 / Math.max(1, this.cells.length)))));
      this.columns = Math.floor(width / this.side);
      const height = Math.max(1, Math.ceil(this.cells.length / this.columns)) * this.side;
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
      this.canvas.style.height = `${height}px`;
      const ctx = this.canvas.getContext('2d');
      ctx.scale(scale, scale);
      const rule = getComputedStyle(document.documentElement).getPropertyValue('--rule').trim();
      const ground = paper();
      const colours = {};
      this.cells.forEach((cell, at) => {
        const [x, y, side] = [at % this.columns * this.side, Math.floor(at / this.columns) * this.side, this.side - 1];
        if (cell.owner === FREE) {
          ctx.globalAlpha = cell.unused ? 0.5 : 1;
          ctx.strokeStyle = rule;
          ctx.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
          ctx.globalAlpha = 1;
          return;
        }
        colours[cell.owner] ||= colourOf(cell.owner, this.map.chunk_bytes);
        ctx.globalAlpha = this.strength(cell);
        ctx.fillStyle = colours[cell.owner];
        ctx.fillRect(x, y, side, side);
        ctx.globalAlpha = 1;
        if (cell.drains) {
          ctx.strokeStyle = ground;
          ctx.lineWidth = 1.5;
          ctx.beginPath();
          ctx.moveTo(x, y + side);
          ctx.lineTo(x + side, y);
          ctx.stroke();
          ctx.lineWidth = 1;
        }
      });
      if (this.at !== null && this.at < this.cells.length) {
        ctx.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue('--ink').trim();
        ctx.lineWidth = 2;
        ctx.strokeRect(this.at % this.columns * this.side - 0.5, Math.floor(this.at / this.columns) * this.side - 0.5, this.side, this.side);
      }
    }

    focus(at) {
      if (at === this.at) return;
      this.at = at;
      this.seen.textContent = at === null ? '\u00a0' : this.words(this.cells[at]);
      this.draw();
    }

    words(cell) {
      const many = this.map.spans_per_cell;
      const which = many === 1 ? `block ${cell.number + 1}` : `blocks ${cell.number * many + 1} to ${(cell.number + 1) * many}`;
      if (cell.unused) return `${which}: never used`;
      const parts = [`${which}: ${cell.mixed ? 'most ' : ''}${nameOf(cell.owner, this.map.chunk_bytes)}`];
      if (cell.owner !== FREE && cell.owner !== INDEX) {
        parts.push(`${Math.round(cell.fill / 2.55)} % full`, `age ${Format.seconds(Math.round(seconds(cell.age)))}`, `due ${DUE[cell.due]}`);
      }
      if (cell.drains) parts.push('being emptied');
      return parts.join(', ');
    }

    point(event) {
      if (!this.map) return;
      const box = this.canvas.getBoundingClientRect();
      const at = Math.floor((event.clientY - box.top) / this.side) * this.columns + Math.floor((event.clientX - box.left) / this.side);
      this.focus(at >= 0 && at < this.cells.length ? at : null);
    }

    key(event) {
      if (!this.map) return;
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns }[event.key];
      if (event.key === 'Escape') this.focus(null);
      else if (step) this.focus(Math.min(this.cells.length - 1, Math.max(0, this.at === null ? 0 : this.at + step)));
      else return;
      event.preventDefault();
    }

    // Spans by how long ago eviction passed them, and by when they are due: each a name and how many.
    byAge() {
      const many = this.map.spans_per_cell;
      const own = this.all.filter(cell => cell.owner !== FREE && cell.owner !== INDEX);
      const ages = AGES.map(([end, name], at) => {
        const from = at === 0 ? -1 : AGES[at - 1][0];
        return [name, own.filter(cell => seconds(cell.age) >= from && seconds(cell.age) < end).length * many];
      });
      const due = DUE.map((name, step) => [name, own.filter(cell => cell.due === step).length * many]);
      return { ages, due: [...due.slice(1), due[0]], all: own.length * many };
    }
  }

  return { Picture, colourOf, nameOf };
})();
