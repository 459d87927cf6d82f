'use strict';
// Charts of the history: which there are, how they are drawn, and how a keyboard moves through them.

const Format = (() => {
  const grouped = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
  const SIZES = [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']];
  // As many digits as are worth something.
  const plain = value => {
    const size = Math.abs(value);
    if (Number.isInteger(value) || size >= 100) return grouped.format(value);
    return String(Number(value.toPrecision(size >= 10 ? 3 : 2)));
  };
  const rate = value => {
    const size = Math.abs(value);
    if (size >= 1e6) return `${(value / 1e6).toPrecision(3)} M`;
    if (size >= 1e4) return `${(value / 1e3).toPrecision(3)} k`;
    return plain(value);
  };
  const bytes = value => {
    const found = SIZES.find(([size]) => Math.abs(value) >= size);
    return found ? `${(value / found[0]).toPrecision(3)} ${found[1]}` : `${plain(value)} B`;
  };
  const percent = value => value === null ? '–' : `${(value * 100).toFixed(value > 0.99 && value < 1 ? 2 : 1)} %`;
  const seconds = value => {
    if (value > 0 && value < 1) return `${plain(value * 1000)} ms`;
    for (const [size, unit] of [[86400, 'd'], [3600, 'h'], [60, 'min']]) {
      if (value >= size) return `${plain(Math.floor(value / size * 10) / 10)} ${unit}`;
    }
    return `${plain(value)} s`;
  };
  const of = { rate: v => `${rate(v)}/s`, count: rate, bytes, byteRate: v => `${bytes(v)}/s`, percent, core: v => `${plain(v)} %` };
  return { whole: value => grouped.format(value), plain, rate, bytes, percent, seconds, of };
})();

// Elements with text in them: text alone, whatever it is.
const element = (name, text, className) => {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
};

const Charts = (() => {
  const sum = (...names) => point => names.reduce((all, name) => all + point(name), 0);
  const ratio = (hits, misses) => point => {
    const [found, not] = [hits(point), misses(point)];
    return found + not > 0 ? found / (found + not) : null;
  };
  const hits = sum('memcached_hits', 'redis_hits'), misses = sum('memcached_misses', 'redis_misses');
  const memcached = sum('memcached_hits', 'memcached_misses', 'memcached_sets', 'memcached_deletes', 'memcached_arithmetic', 'memcached_touches');
  const core = name => point => point(name) / 1e4;

  const CHARTS = [
    { id: 'reads', title: 'Keys read', unit: 'rate', lines: [['hits', hits], ['misses', misses], ['misses of expired keys', sum('misses_expired')]] },
    { id: 'ratio', title: 'Hit ratio', unit: 'percent', lines: [['all', ratio(hits, misses)], ['memcached', ratio(sum('memcached_hits'), sum('memcached_misses'))], ['RESP', ratio(sum('redis_hits'), sum('redis_misses'))]] },
    { id: 'requests', title: 'Requests', unit: 'rate', lines: [['keys by memcached\'s text', memcached], ['RESP commands', sum('redis_commands')]] },
    { id: 'writes', title: 'Items written', unit: 'rate', lines: [['stored', sum('items_stored')], ['deleted by text', sum('memcached_deletes')], ['counted up or down', sum('memcached_arithmetic')]] },
    { id: 'leaving', title: 'Items that leave', unit: 'rate', lines: [['evicted', sum('evictions')], ['evicted, never read', sum('evicted_unfetched')], ['expired', sum('reclaimed')], ['stored again soon', sum('ghost_hits')]] },
    { id: 'memory', title: 'Memory', unit: 'bytes', lines: [['counts against the limit', sum('memory_used')], ['limit', sum('memory_limit')], ['items', sum('item_bytes')], ['index', sum('index_bytes')], ['resident, of the process', sum('resident')], ['held by connections', sum('memory_held')]] },
    { id: 'network', title: 'Network', unit: 'byteRate', lines: [['received', sum('bytes_read')], ['sent', sum('bytes_written')]] },
    { id: 'cpu', title: 'Processor, of one core', unit: 'core', lines: [['program', core('cpu_user')], ['system', core('cpu_system')]] },
    { id: 'connections', title: 'Connections', unit: 'count', lines: [['open', sum('connections')], ['opened a second', sum('connections_opened')], ['closed by the server a second', sum('connections_closed')]] },
    { id: 'trouble', title: 'Refused and failed', unit: 'rate', lines: [['RESP errors', sum('redis_errors')], ['other version found (cas)', sum('cas_badval')], ['no memory', sum('out_of_memory')], ['connections refused', sum('connections_refused')]] },
    { id: 'items', title: 'Items there', unit: 'count', lines: [['items', sum('items')]] },
    { id: 'moving', title: 'Memory that moves between classes', unit: 'rate', lines: [['blocks of 64 KiB', sum('spans_moved')], ['chunks', sum('chunks_moved')]] },
  ];
  const DASHES = [[], [7, 4], [2, 3]];
  // Values without one on either side: no line leads to them.
  const lone = values => {
    const found = [];
    const known = at => values[at] !== null && values[at] !== undefined;
    values.forEach((_, at) => { if (known(at) && !known(at - 1) && !known(at + 1)) found.push(at); });
    return found;
  };
  // Room for the longest of an axis' numbers, with its tick and gap.
  const room = numbers => 26 + 7 * Math.max(4, ...(numbers || []).map(text => text.length));
  const ROWS = 20, HEIGHT = 180;

  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const clock = seconds => new Date(seconds * 1000).toLocaleTimeString('en-GB');
  const shortly = seconds => clock(seconds).replace(/:00$/, '');
  // Steps of an axis of bytes: powers of two, so that its numbers are round.
  const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);

  class Chart {
    constructor(chart, into, moved) {
      this.chart = chart;
      this.format = Format.of[chart.unit];
      this.data = [[], ...chart.lines.map(() => [])];
      this.marks = [];
      this.moved = moved;
      this.figure = element('figure');
      this.figure.id = `chart-${chart.id}`;
      const head = element('div', undefined, 'head');
      head.append(element('h3', chart.title));
      this.at = element('p', '');
      head.append(this.at);
      this.button = element('button', 'table');
      this.button.type = 'button';
      this.button.setAttribute('aria-expanded', 'false');
      this.button.setAttribute('aria-label', `${chart.title}: the newest values as a table`);
      this.button.addEventListener('click', () => this.toggle());
      head.append(this.button);
      this.plot = element('div', undefined, 'plot');
      this.plot.tabIndex = 0;
      this.plot.setAttribute('role', 'img');
      this.plot.addEventListener('keydown', event => this.key(event));
      this.legend = element('ul', undefined, 'legend');
      this.values = chart.lines.map(([name], at) => {
        const line = element('li');
        line.append(element('i', undefined, `c${at} dash${at % DASHES.length}`), `${name} `);
        const value = element('b', '–');
        line.append(value);
        this.legend.append(line);
        return value;
      });
      this.table = element('div', undefined, 'wide');
      this.table.hidden = true;
      this.figure.append(head, this.plot, this.legend, this.table);
      into.append(this.figure);
    }

    // Made anew: with other colours, or another width.
    draw() {
      if (this.uplot) this.uplot.destroy();
      const [soft, rule] = [colour('--soft'), colour('--rule')];
      const axis = { stroke: soft, grid: { stroke: rule, width: 1 }, ticks: { stroke: rule, width: 1 }, font: '12px system-ui' };
      const share = this.chart.unit === 'percent';
      this.uplot = new uPlot({
        width: Math.max(200, this.plot.clientWidth), height: HEIGHT, legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false } },
        scales: { y: { range: (_, low, high) => share ? [0, 1] : [0, Math.max(high || 0, 1) * 1.08] } },
        axes: [{ ...axis, space: 70, size: 34, values: (_, ticks) => ticks.map(shortly) }, { ...axis, size: (_, numbers) => room(numbers), ...(this.chart.unit.startsWith('byte') ? { incrs: POWERS } : {}), values: (_, ticks) => ticks.map(tick => this.format(tick)) }],
        series: [{}, ...this.chart.lines.map(([name], at) => ({
          label: name, stroke: colour(`--c${at}`), width: 2, dash: DASHES[at % DASHES.length], spanGaps: false,
          points: { show: false, size: 6, fill: colour(`--c${at}`), filter: (uplot, line) => lone(uplot.data[line]) },
        }))],
        hooks: { draw: [uplot => this.drawMarks(uplot, soft)] },
      }, this.data, this.plot);
      const { over } = this.uplot;
      over.addEventListener('pointermove', event => {
        this.moved(this.data[0].length > 0 ? this.uplot.posToIdx(event.clientX - over.getBoundingClientRect().left) : null);
      });
      over.addEventListener('pointerleave', () => this.moved(null));
      // The label says it; what is within is drawn.
      this.say();
    }

    drawMarks(uplot, stroke) {
      const { ctx, bbox } = uplot;
      ctx.save();
      ctx.strokeStyle = stroke;
      ctx.setLineDash([2, 4]);
      for (const at of this.marks) {
        const x = uplot.valToPos(at, 'x', true);
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
      }
      ctx.restore();
    }

    show(times, point, marks) {
      this.data = [times, ...this.chart.lines.map(([, read]) => times.map((_, at) => read(name => point(name, at))))];
      this.marks = marks;
      if (this.uplot) this.uplot.setData(this.data);
      this.say();
      if (!this.table.hidden) this.fill();
    }

    text(line, at) {
      const value = this.data[line + 1][at];
      return value === null || value === undefined ? '–' : this.format(value);
    }

    // Values at a place, or the newest.
    say(place) {
      const last = this.data[0].length - 1;
      const at = place ?? last;
      this.values.forEach((value, line) => { value.textContent = at < 0 ? '–' : this.text(line, at); });
      this.at.textContent = at < 0 || at === last ? '' : clock(this.data[0][at]);
      const words = this.chart.lines.map(([name], line) => `${name} ${last < 0 ? 'unknown' : this.text(line, last)}`);
      this.plot.setAttribute('aria-label', `${this.chart.title}, newest: ${words.join(', ')}`);
    }

    // The cursor goes there, or away.
    point(place) {
      this.place = place;
      if (!this.uplot) return;
      if (place === null) this.uplot.setCursor({ left: -10, top: -10 });
      else this.uplot.setCursor({ left: this.uplot.valToPos(this.data[0][place], 'x'), top: 10 });
      this.say(place);
    }

    key(event) {
      const last = this.data[0].length - 1;
      if (last < 0) return;
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
      if (step) this.moved(Math.min(last, Math.max(0, (this.place ?? last) + step)));
      else if (event.key === 'Home') this.moved(0);
      else if (event.key === 'End') this.moved(last);
      else if (event.key === 'Escape') this.moved(null);
      else return;
      event.preventDefault();
    }

    toggle() {
      this.table.hidden = !this.table.hidden;
      this.button.setAttribute('aria-expanded', String(!this.table.hidden));
      if (!this.table.hidden) this.fill();
    }

    fill() {
      const table = element('table');
      table.append(element('caption', `${this.chart.title}, newest first`));
      const head = table.createTHead().insertRow();
      for (const name of ['time', ...this.chart.lines.map(([name]) => name)]) {
        const cell = element('th', name);
        cell.scope = 'col';
        head.append(cell);
      }
      const body = table.createTBody();
      for (let at = this.data[0].length - 1; at >= Math.max(0, this.data[0].length - ROWS); at -= 1) {
        const row = body.insertRow();
        const time = element('th', clock(this.data[0][at]));
        time.scope = 'row';
        row.append(time, ...this.chart.lines.map((_, line) => element('td', this.text(line, at), 'number')));
      }
      this.table.replaceChildren(table);
    }
  }

  // All charts, whose cursors move together: they stay at a moment, while points come and go.
  class All {
    constructor(into) {
      this.times = [];
      this.at = null;
      const moved = place => {
        this.at = place === null ? null : this.times[place];
        this.charts.forEach(chart => chart.point(place));
      };
      this.charts = CHARTS.map(chart => new Chart(chart, into, moved));
    }

    draw() { this.charts.forEach(chart => chart.draw()); }

    show(times, point, marks) {
      this.times = times;
      this.charts.forEach(chart => chart.show(times, point, marks));
      if (this.at === null) return;
      const found = times.findIndex(time => time >= this.at);
      const place = found >= 0 ? found : null;
      // Behind uPlot, which has its new scale only then.
      queueMicrotask(() => this.charts.forEach(chart => chart.point(place)));
    }
  }

  // A line of the last values in a box of its own size.
  const spark = (svg, values) => {
    const high = Math.max(...values, 1e-9), width = Math.max(1, values.length - 1);
    const places = values.map((value, at) => `${(at / width * 100).toFixed(1)},${(24 - value / high * 22).toFixed(1)}`);
    svg.firstChild.setAttribute('points', places.join(' '));
  };

  return { All, spark, memcached, hits, misses, clock, lone };
})();
