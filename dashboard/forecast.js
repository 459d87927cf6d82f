'use strict';
// The forecast: hit ratio against memory, with its band.

const Forecast = (() => {
  // At the right half of the last limit's words stands behind its line.
  const WIDTH = 720, HEIGHT = 260, LEFT = 56, RIGHT = 44, TOP = 14, BOTTOM = 40;
  const FACTORS = [0.25, 0.5, 0.75, 1, 1.5, 2, 4];

  const drawn = (name, attributes, text) => {
    const node = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const limit = bytes => `${Format.whole(bytes / 1048576)} MB`;
  const x = factor => LEFT + (WIDTH - LEFT - RIGHT) * (Math.log2(factor) + 2) / 4;

  // No more digits than the error leaves.
  const points = (part, error) => {
    const digits = error > 0 ? Math.min(2, Math.max(0, Math.ceil(-Math.log10(error * 100)))) : 2;
    return [(part * 100).toFixed(digits), (error * 100).toFixed(digits)];
  };
  const ratio = point => { const [is, error] = points(point.hit_ratio, point.error); return `${is} % ± ${error}`; };

  // What is worth showing: where memory is not used up, more of it brings nothing that is known.
  const shown = told => told.points.filter(point => told.full || point.factor <= 1);

  // Between two sizes, along the line.
  const between = (all, factor) => {
    const after = all.findIndex(point => point.factor >= factor);
    if (after < 0) return null;
    const to = all[after];
    if (to.factor === factor || after === 0) return to.factor === factor ? to : null;
    const from = all[after - 1], part = Math.log(factor / from.factor) / Math.log(to.factor / from.factor);
    const mix = name => from[name] + (to[name] - from[name]) * part;
    return { factor, limit_bytes: to.limit_bytes / to.factor * factor, hit_ratio: mix('hit_ratio'), error: Math.max(from.error, to.error), vague: from.vague || to.vague };
  };

  const words = told => {
    if (!told.ready) return `Not enough was seen yet: ${Math.min(99, Math.floor(told.progress * 100))} % of the reads and misses that it takes. In a full cache everything has to be evicted once.`;
    const all = shown(told), lines = [];
    for (const [factor, name] of [[0.75, 'a quarter less'], [1.25, 'a quarter more'], [2, 'twice as much']]) {
      const point = between(all, factor);
      if (!point || point.vague) continue;
      const change = point.hit_ratio - told.hit_ratio, [is, error] = points(Math.abs(change), point.error);
      const loads = Math.abs(change) * told.reads_per_second;
      lines.push(`${name} (-m ${Math.round(point.limit_bytes / 1048576)}): ${is} ± ${error} points ${change < 0 ? 'fewer' : 'more'}, ${Format.rate(loads)} misses a second ${change < 0 ? 'more' : 'fewer'}`);
    }
    const free = told.full ? '' : ` ${Format.bytes(told.free_bytes)} are free, so that more brings nothing.`;
    return `Of memory ${lines.join('; ')}.${free}`;
  };

  const stands = told => told.ready
    ? `It stands on ${Format.whole(told.events)} requests of ${Format.whole(told.keys)} keys at a time, one in ${Format.whole(told.keys_for_each)}, in ${Format.seconds(Math.round(told.seconds))}. Its own cache of today's size misses ${Format.percent(told.simulated_miss_ratio)} of them, the server ${Format.percent(told.sampled_miss_ratio)}.`
    : '';

  class Picture {
    constructor(svg) {
      this.svg = svg;
      svg.setAttribute('viewBox', `0 0 ${WIDTH} ${HEIGHT}`);
    }

    show(told) {
      const all = told.ready ? shown(told) : [];
      this.svg.classList.toggle('unready', all.length === 0);
      const bounds = all.flatMap(point => [point.hit_ratio - point.error, point.hit_ratio + point.error]);
      const low = Math.max(0, Math.min(...bounds, told.hit_ratio ?? 0) - 0.02), high = Math.min(1, Math.max(...bounds, told.hit_ratio ?? 1) + 0.02);
      const y = part => TOP + (HEIGHT - TOP - BOTTOM) * (high - Math.min(high, Math.max(low, part))) / Math.max(1e-6, high - low);
      const parts = [];
      const step = [0.01, 0.02, 0.05, 0.1, 0.2].find(step => (high - low) / step <= 6) || 0.25;
      for (let part = Math.ceil(low / step) * step; part <= high + 1e-9; part += step) {
        parts.push(drawn('line', { class: 'rule', x1: LEFT, x2: WIDTH - RIGHT, y1: y(part), y2: y(part) }));
        parts.push(drawn('text', { class: 'up', x: LEFT - 6, y: y(part) + 4 }, `${Math.round(part * 100)} %`));
      }
      for (const factor of FACTORS) {
        parts.push(drawn('line', { class: 'rule', x1: x(factor), x2: x(factor), y1: TOP, y2: HEIGHT - BOTTOM }));
        parts.push(drawn('text', { class: 'along', x: x(factor), y: HEIGHT - BOTTOM + 16 }, told.limit_bytes ? limit(told.limit_bytes * factor) : `${factor} ×`));
      }
      parts.push(drawn('text', { class: 'along', x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 6 }, 'memory limit (-m)'));
      if (all.length > 0) {
        const at = (point, part) => `${x(point.factor).toFixed(1)},${y(part).toFixed(1)}`;
        const band = [...all.map(point => at(point, point.hit_ratio + point.error)), ...[...all].reverse().map(point => at(point, point.hit_ratio - point.error))];
        parts.push(drawn('polygon', { class: 'band', points: band.join(' ') }));
        for (let n = 1; n < all.length; n += 1) {
          const vague = all[n].vague || all[n - 1].vague;
          parts.push(drawn('polyline', { class: vague ? 'line vague' : 'line', points: `${at(all[n - 1], all[n - 1].hit_ratio)} ${at(all[n], all[n].hit_ratio)}` }));
        }
        parts.push(drawn('circle', { class: 'now', cx: x(1), cy: y(told.hit_ratio), r: 5 }));
      }
      this.svg.replaceChildren(...parts);
      const said = all.map(point => `${limit(point.limit_bytes)} ${ratio(point)}${point.vague ? ', vague' : ''}`);
      this.svg.setAttribute('aria-label', all.length > 0 ? `Hit ratio by memory limit: ${said.join('; ')}` : `Forecast of the hit ratio: ${words(told)}`);
    }
  }

  return { Picture, words, stands, shown, ratio, limit };
})();
