'use strict';
// Values under the pointer, and the button for the theme. Everything else is there without this script.
(() => {
  const root = document.documentElement;
  const button = document.getElementById('theme');
  const dark = () => root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  const say = () => { button.textContent = dark() ? 'light' : 'dark'; };
  button.hidden = false;
  button.addEventListener('click', () => { root.dataset.theme = dark() ? 'light' : 'dark'; say(); });
  say();

  const LEFT = 68, RIGHT = 742, TOP = 22, BOTTOM = 308, WIDTH = 760;
  const tip = document.getElementById('tip');
  const plots = new Map(JSON.parse(document.getElementById('plots').textContent).map(plot => [plot.id, plot]));
  const number = value => {
    const size = Math.abs(value);
    return size >= 1000 ? Math.round(value).toLocaleString('en') : String(Number(value.toPrecision(4)));
  };
  const element = (name, text) => {
    const node = document.createElement(name);
    if (text !== undefined) node.textContent = text;
    return node;
  };

  for (const figure of document.querySelectorAll('figure[data-scale]')) {
    const plot = plots.get(figure.dataset.plot);
    const svg = figure.querySelector('svg');
    const colours = [...figure.querySelectorAll('.legend i')].map(mark => mark.classList[0]);
    const low = Number(figure.dataset.low), high = Number(figure.dataset.high);
    const log = figure.dataset.scale === 'log';
    const place = x => LEFT + (RIGHT - LEFT) * (log ? Math.log(x / low) / Math.log(high / low) : (x - low) / (high - low));
    const all = [...new Set(plot.curves.flatMap(curve => curve.points.map(point => point.x)))].sort((a, b) => a - b);
    const cursor = document.createElementNS(svg.namespaceURI, 'line');
    cursor.setAttribute('class', 'cursor');
    cursor.setAttribute('y1', TOP);
    cursor.setAttribute('y2', BOTTOM);
    cursor.style.display = 'none';
    svg.append(cursor);

    svg.addEventListener('pointermove', event => {
      const box = svg.getBoundingClientRect();
      const at = (event.clientX - box.left) * WIDTH / box.width;
      const nearest = all.reduce((best, x) => Math.abs(place(x) - at) < Math.abs(place(best) - at) ? x : best, all[0]);
      cursor.setAttribute('x1', place(nearest));
      cursor.setAttribute('x2', place(nearest));
      cursor.style.display = '';
      tip.replaceChildren(element('b', `${plot.x.label} ${number(nearest)} ${plot.x.unit}`));
      plot.curves.forEach((curve, index) => {
        const point = curve.points.find(point => point.x === nearest);
        if (!point) return;
        const line = element('div');
        line.className = colours[index];
        const ends = point.interval ? ` (${number(point.interval[0])} … ${number(point.interval[1])})` : '';
        line.append(element('i'), element('span', `${curve.name}: ${number(point.y)} ${plot.y.unit}${ends}`));
        tip.append(line);
      });
      tip.hidden = false;
      const left = event.clientX + 16 + tip.offsetWidth > innerWidth ? event.clientX - 16 - tip.offsetWidth : event.clientX + 16;
      tip.style.left = `${Math.max(4, left)}px`;
      tip.style.top = `${Math.min(event.clientY + 12, innerHeight - tip.offsetHeight - 4)}px`;
    });
    svg.addEventListener('pointerleave', () => { tip.hidden = true; cursor.style.display = 'none'; });
  }
})();
