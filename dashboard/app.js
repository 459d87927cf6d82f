'use strict';
// The page: asks the server, and shows what it says. All that comes from it is shown as text.

(() => {
  const byId = id => document.getElementById(id);
  const LEVELS = { 1: 300, 15: 240, 120: 720 };
  // Moments that are kept of stalls, and as many of all else: as the server does.
  const MOMENTS = 64;
  const PAUSES_MS = [1000, 2000, 5000, 10000];
  const SLOWLY_EVERY = 5, SETTINGS_EVERY = 30;
  const HOT_KEY_BYTES = 250;
  const STALLS = {
    work: 'it worked: a command or upkeep took long', 'no-processor': 'others had its processor', 'page-fault': 'memory was read from a disk',
    stopped: 'the system kept it waiting, or the process was stopped', unknown: 'the system does not say by what',
  };

  // ---- State

  const state = { run: null, step: 1, choice: 0, ends: [], series: {}, offset: 0, marks: [], failed: 0, heard: null, paused: false, beats: 0, version: null, figures: null, restarted: [] };

  // The server did not answer, or not as it should: anything else that is thrown is a mistake of this page.
  class Unanswered extends Error {}

  const get = async path => {
    try {
      // From the origin: a page that was opened with its user and password in the address may ask for nothing beside itself else.
      const response = await fetch(location.origin + path, { cache: 'no-store', credentials: 'same-origin', redirect: 'error' });
      if (!response.ok) throw Object.assign(new Unanswered(`${path}: ${response.status}`), { status: response.status });
      return await response.json();
    } catch (error) {
      throw error instanceof Unanswered ? error : new Unanswered(`${path}: ${error.message}`);
    }
  };

  // ---- Tables

  // Columns: name, how a row's cell is filled, and for numbers what it is sorted by.
  const tables = {};
  const table = (id, caption, columns, sorted) => {
    const node = byId(id);
    node.append(element('caption', caption));
    const row = node.createTHead().insertRow();
    const sort = { at: sorted === undefined ? null : Math.abs(sorted) - 1, down: (sorted || 0) < 0 };
    const body = node.createTBody();
    const one = { rows: [] };
    const draw = () => {
      const { at, down } = sort;
      const rows = [...one.rows];
      if (at !== null) {
        const value = columns[at].value;
        rows.sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (down ? -1 : 1));
      }
      row.childNodes.forEach((head, n) => {
        if (n === at) head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
        else head.removeAttribute('aria-sort');
      });
      body.replaceChildren(...rows.map(values => {
        const line = element('tr');
        columns.forEach((column, n) => {
          const cell = element(n === 0 ? 'th' : 'td', undefined, column.className || (column.number ? 'number' : ''));
          if (n === 0) cell.scope = 'row';
          const shown = column.show ? column.show(values) : column.value(values);
          cell.append(shown === null || shown === undefined ? '–' : shown);
          line.append(cell);
        });
        return line;
      }));
      if (rows.length === 0) {
        const cell = element('td', 'none', 'empty');
        cell.colSpan = columns.length;
        const line = element('tr');
        line.append(cell);
        body.append(line);
      }
    };
    columns.forEach((column, n) => {
      const head = element('th', undefined, column.number ? 'number' : '');
      head.scope = 'col';
      const button = element('button', column.name);
      button.type = 'button';
      button.addEventListener('click', () => {
        sort.down = sort.at === n ? !sort.down : Boolean(column.number);
        sort.at = n;
        draw();
      });
      head.append(button);
      row.append(head);
    });
    one.show = values => { one.rows = values; draw(); };
    tables[id] = one;
  };
  const number = (name, value, show) => ({ name, number: true, value, show: row => (show || Format.whole)(value(row)) });
  const text = (name, value, className) => ({ name, value: row => value(row) ?? '', show: row => String(value(row) ?? ''), className });
  const swatch = (colour, name) => {
    const parts = document.createDocumentFragment();
    const box = element('span', undefined, 'swatch');
    box.style.background = colour;
    parts.append(box, name);
    return parts;
  };
  const share = (part, all) => all > 0 ? part / all : 0;
  // No more digits than the error leaves.
  const giveOrTake = (part, error) => {
    const digits = error > 0 ? Math.min(3, Math.max(0, Math.ceil(-Math.log10(error * 100)))) : 2;
    return `${(part * 100).toFixed(digits)} % ± ${(error * 100).toFixed(digits)}`;
  };

  // ---- History

  const forget = () => { state.ends = []; state.series = {}; };

  // Has what is new since the newest point added; tells whether it is of the range that is chosen by then.
  const history = async () => {
    const last = state.ends[state.ends.length - 1];
    const since = last === undefined ? '' : `&since=${last}`;
    const { step, choice } = state;
    const told = await get(`/api/v1/history?step=${step}${since}`);
    if (choice !== state.choice) return false;
    if (state.run !== null && told.run !== state.run) {
      // Another server: its figures are of its own.
      state.restarted = [...state.restarted, told.time_ms / 1000].slice(-MOMENTS);
      state.run = told.run;
      forget();
      return history();
    }
    state.run = told.run;
    if (last === undefined) {
      state.offset = told.time_ms - told.now_ms;
      state.marks = told.marks;
    } else {
      state.marks.push(...told.marks.filter(mark => mark.at_ms > last && !state.marks.some(known => known.at_ms === mark.at_ms && known.what === mark.what && known.rule === mark.rule)));
    }
    const isStall = mark => mark.what === 'stalled';
    state.marks = [isStall, mark => !isStall(mark)].flatMap(is => state.marks.filter(is).slice(-MOMENTS));
    state.ends.push(...told.end_ms);
    for (const [name, values] of Object.entries(told.series)) (state.series[name] ||= []).push(...values);
    const beyond = state.ends.length - LEVELS[step];
    if (beyond > 0) {
      state.ends.splice(0, beyond);
      Object.values(state.series).forEach(values => values.splice(0, beyond));
    }
    return true;
  };

  const times = () => state.ends.map(end => (end + state.offset) / 1000);
  const point = (name, at) => (state.series[name] || [])[at] || 0;

  const showHistory = () => {
    const marks = [...state.marks.map(mark => (mark.at_ms + state.offset) / 1000), ...state.restarted];
    charts.show(times(), point, marks);
    const words = mark => {
      switch (mark.what) {
        case 'flushed': return 'items were flushed';
        case 'limit': return `the memory limit became ${Format.bytes(mark.bytes)}`;
        case 'stalled': return `a worker was held up for ${Format.seconds(mark.took_us / 1e6)}: ${STALLS[mark.cause]}`;
        case 'found': return `found: ${mark.rule}`;
        case 'over': return `over: ${mark.rule}`;
        default: return mark.what;
      }
    };
    const lines = [
      ...state.marks.map(mark => [(mark.at_ms + state.offset) / 1000, words(mark)]),
      ...state.restarted.map(at => [at, 'the server was started anew']),
    ].sort((one, other) => other[0] - one[0]);
    byId('marks').replaceChildren(...lines.map(([at, what]) => element('li', `${Charts.clock(at)}  ${what}`)));
    byId('happened').hidden = byId('moments').hidden = lines.length === 0;
  };

  // ---- Tiles

  const TILES = [
    ['requests', 'requests a second', name => Charts.memcached(name) + name('redis_commands')],
    ['ratio', 'hit ratio', name => share(Charts.hits(name), Charts.hits(name) + Charts.misses(name))],
    ['memory', 'memory used', name => name('memory_used')],
    ['items', 'items', name => name('items')],
    ['evictions', 'evictions a second', name => name('evictions')],
    ['connections', 'connections', name => name('connections')],
    ['network', 'network', name => name('bytes_read') + name('bytes_written')],
    ['cpu', 'processor, of one core', name => name('cpu_user') + name('cpu_system')],
  ];
  const tiles = {};
  for (const [id, name] of TILES) {
    const tile = element('div', undefined, 'tile');
    tile.id = `tile-${id}`;
    const value = element('strong', '–'), more = element('small', '');
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    svg.setAttribute('viewBox', '0 0 100 26');
    svg.setAttribute('preserveAspectRatio', 'none');
    svg.setAttribute('aria-hidden', 'true');
    svg.append(document.createElementNS('http://www.w3.org/2000/svg', 'polyline'));
    tile.append(element('h3', name), value, more, svg);
    byId('tiles').append(tile);
    tiles[id] = { value, more, svg };
  }

  const showTiles = () => {
    const { figures } = state;
    const last = state.ends.length - 1;
    const now = name => point(name, last);
    const set = (id, value, more) => { tiles[id].value.textContent = value; tiles[id].more.textContent = more; };
    if (last >= 0) {
      const asked = Charts.hits(now) + Charts.misses(now);
      set('requests', Format.rate(Charts.memcached(now) + now('redis_commands')), `${Format.rate(Charts.memcached(now))} text, ${Format.rate(now('redis_commands'))} RESP`);
      set('ratio', asked > 0 ? Format.percent(Charts.hits(now) / asked) : '–', asked > 0 ? `${Format.rate(Charts.misses(now))} misses/s` : 'nothing is read now');
      set('evictions', Format.rate(now('evictions')), `${Format.rate(now('reclaimed'))} expired/s`);
      set('network', Format.of.byteRate(now('bytes_read') + now('bytes_written')), `${Format.bytes(now('bytes_read'))} in, ${Format.bytes(now('bytes_written'))} out`);
      set('cpu', `${Format.plain((now('cpu_user') + now('cpu_system')) / 1e4)} %`, `${Format.plain(now('cpu_system') / 1e4)} % in the system`);
    }
    if (figures) {
      const all = figures.hits + figures.misses;
      set('memory', Format.bytes(figures.memory_used), `${Format.percent(share(figures.memory_used, figures.memory_limit))} of ${Format.bytes(figures.memory_limit)}`);
      set('items', Format.whole(figures.items), `${Format.bytes(figures.item_bytes)} with their keys`);
      set('connections', Format.whole(figures.connections), `of ${Format.whole(figures.connections_max)}`);
      if (all > 0) tiles.ratio.more.textContent += `; ${Format.percent(figures.hits / all)} since the start`;
    }
    for (const [id, , read] of TILES) {
      const from = Math.max(0, state.ends.length - 120);
      Charts.spark(tiles[id].svg, state.ends.slice(from).map((_, at) => read(name => point(name, from + at))));
    }
  };

  const showHead = () => {
    if (!state.figures) return;
    byId('version').textContent = state.version;
    byId('place').textContent = `${location.host}, up ${Format.seconds(state.figures.uptime_seconds)}, ${state.figures.threads} thread${state.figures.threads === 1 ? '' : 's'}, process ${state.figures.process_id}`;
    document.title = `Larder ${location.host}`;
  };

  // ---- Findings

  const SEVERITIES = ['note', 'warning', 'serious'];
  const showFindings = findings => {
    const items = findings.map(finding => {
      const line = element('li', undefined, finding.severity);
      const head = element('div');
      head.append(element('b', finding.severity), finding.evidence);
      line.append(head, element('p', `${finding.advice} (${finding.rule})`));
      return line;
    });
    byId('findings').replaceChildren(...(items.length > 0 ? items : [element('li', 'Nothing to say: all is well.')]));
    const worst = Math.max(-1, ...findings.map(finding => SEVERITIES.indexOf(finding.severity)));
    const words = worst < 0 ? 'All is well.' : `${findings.length} finding${findings.length === 1 ? '' : 's'}: ${findings[0].evidence}.`;
    verdict(worst < 0 ? 'good' : SEVERITIES[worst], words);
  };
  const verdict = (kind, words) => {
    const node = byId('verdict');
    if (node.textContent !== words) node.textContent = words;
    node.className = kind;
  };

  // ---- Memory

  // Each has a colour of its own: one of the palette, or so much of it on paper.
  const USES = { items: ['--c0', 100], long_keys: ['--c0', 45], rounding: ['--c3', 100], chunks_free: ['--c3', 35], index: ['--c2', 100], index_free: ['--c2', 40], probation: ['--c4', 100], ghosts: ['--c4', 65], trees: ['--c4', 35], watches: ['--ink', 75], buffers: ['--c1', 100], aside: ['--c5', 100], free: ['--paper', 100] };
  const useColour = name => {
    const [colour, part] = USES[name] || ['--base', 100];
    return part === 100 ? `var(${colour})` : `color-mix(in srgb, var(${colour}) ${part}%, var(--paper))`;
  };
  const useName = name => name === 'aside' ? 'threads and bookkeeping' : name.replaceAll('_', ' ');
  table('memory-table', 'Memory that counts against the limit, use by use: exact when nothing moves', [
    { name: 'use', value: row => row.use, show: row => swatch(useColour(row.use), useName(row.use)) },
    number('bytes', row => row.bytes),
    number('share of the limit', row => row.share, Format.percent),
    text('what it is', row => row.help, 'text'),
  ]);
  const showMemory = memory => {
    const free = Math.max(0, memory.limit - memory.used);
    const rows = [...memory.uses, { use: 'free', help: 'what the limit allows and nobody uses', bytes: free }];
    rows.forEach(row => { row.share = share(row.bytes, memory.limit); });
    tables['memory-table'].show(rows);
    byId('ledger').replaceChildren(...rows.filter(row => row.share > 0.0005).map(row => {
      const part = element('span');
      part.style.width = `${row.share * 100}%`;
      part.style.background = useColour(row.use);
      part.title = `${useName(row.use)}: ${Format.bytes(row.bytes)}, ${Format.percent(row.share)}`;
      return part;
    }));
    const of = (...names) => memory.uses.filter(row => names.includes(row.use)).reduce((all, row) => all + row.share, 0);
    const parts = [[of('items', 'long_keys'), 'keys and values'], [of('index', 'index_free'), 'the index'], [of('rounding'), 'rounding'], [of('chunks_free'), 'free chunks'], [of('aside'), 'threads and bookkeeping'], [of('probation', 'ghosts', 'trees', 'watches', 'buffers'), 'other uses'], [share(free, memory.limit), 'free']];
    const words = `Of ${Format.bytes(memory.limit)}, ${parts.map(([part, name]) => `${Format.percent(part)} is ${name}`).join(', ')}.`;
    byId('memory-words').textContent = `${words} Connections hold ${Format.bytes(memory.held)} of at most ${Format.bytes(memory.held_max)}.`;
    byId('ledger').setAttribute('aria-label', words);
  };

  // ---- Map

  const map = new SpanMap.Picture(byId('map'), byId('map-seen'), byId('map-order'), byId('map-shade'));
  let chunkBytes = {};
  table('map-owners', 'What each block of 64 KiB is for', [
    { name: 'whose', value: row => row.owner, show: row => swatch(SpanMap.colourOf(row.owner, chunkBytes), SpanMap.nameOf(row.owner, chunkBytes)) },
    number('spans', row => row.spans),
    number('bytes', row => row.bytes, Format.bytes),
    number('being emptied', row => row.draining),
  ], -2);
  const counted = count => count < 0 ? '' : Format.whole(count);
  table('map-ages', 'Age and expiry, by blocks of 64 KiB', [
    text('blocks of classes', row => row.name),
    number('of this age', row => row.aged ?? -1, counted),
    number('due to expire', row => row.due ?? -1, counted),
  ]);
  const showMap = told => {
    chunkBytes = told.chunk_bytes;
    map.show(told);
    byId('map-cell').textContent = told.spans_per_cell === 1 ? 'a block of 64 KiB' : `${told.spans_per_cell} blocks of 64 KiB`;
    tables['map-owners'].show(told.owners.map(row => ({ ...row, bytes: row.spans * told.span_bytes })));
    const { ages, due } = map.byAge();
    const dueNames = ['within 10 s', 'within 1 min', 'within 10 min', 'within 1 h', 'within a day', 'later', 'never'];
    tables['map-ages'].show([
      ...ages.map(([name, count]) => ({ name, aged: count, due: null })),
      ...due.map(([, count], at) => ({ name: `due ${dueNames[at]}`, aged: null, due: count })),
    ].filter(row => row.aged > 0 || row.due > 0));
  };

  // ---- Expiry and age

  const TIMES = { '10s': '10 s', '1m': '1 min', '10m': '10 min', '1h': '1 h', '6h': '6 h', '1d': 'a day' };
  const within = (part, before) => part.within === 'never' ? 'never' : part.within === 'more' ? `more than ${TIMES[before.within]}` : `up to ${TIMES[part.within]}`;
  const bar = row => {
    const node = element('meter');
    node.value = row.share;
    node.setAttribute('aria-label', Format.percent(row.share));
    return node;
  };
  const ageTable = (id, caption, name) => table(id, caption, [
    text(name, row => row.name),
    { name: 'share of bytes', number: true, value: row => row.share, show: row => giveOrTake(row.share, row.error) },
    { name: 'as a bar', value: row => row.share, show: bar },
    number('bytes', row => row.bytes, Format.bytes),
    number('share of items', row => row.items, Format.percent),
  ]);
  ageTable('left-table', 'What items have left until they expire', 'expires in');
  ageTable('idle-table', 'How long ago items were read or written', 'last used');
  table('types-table', 'Types of values, counted. Where others are within a doubling of the largest, it has at most so much; of strings it is one that was looked at', [
    text('type', row => row.type),
    number('share of bytes', row => row.share, Format.percent),
    number('bytes', row => row.bytes, Format.bytes),
    number('items', row => row.items),
    number('elements', row => row.elements),
    { name: 'largest', number: true, value: row => row.largest_bytes ?? -1, show: row => row.largest_bytes === null ? null : Format.bytes(row.largest_bytes) },
    { name: 'most elements', number: true, value: row => row.most_elements ?? -1, show: row => row.most_elements === null ? null : Format.whole(row.most_elements) },
  ], -2);
  table('evicted-table', 'How long ago what was evicted had been read or written, since the start', [
    text('last used', row => row.name),
    number('share of items', row => row.share, Format.percent),
    { name: 'as a bar', value: row => row.share, show: bar },
    number('items', row => row.items),
  ]);
  const showAges = told => {
    const evicted = told.evicted.reduce((sum, part) => sum + part.items, 0);
    const ages = told.evicted.map(({ seconds, items }, at) => ({
      name: seconds === null ? `more than ${Format.seconds(told.evicted[at - 1].seconds)}` : `up to ${Format.seconds(seconds)}`,
      share: share(items, evicted), items,
    }));
    tables['evicted-table'].show(ages.slice(0, 1 + ages.findLastIndex(part => part.items > 0)));
    const named = parts => parts.map((part, at) => ({ ...part, name: within(part, parts[at - 1]) }));
    tables['left-table'].show(named(told.left));
    tables['idle-table'].show(named(told.idle));
    tables['types-table'].show(told.types);
    const looked = told.whole ? `All ${Format.whole(told.items)} items were looked at.` : `By ${Format.whole(told.items)} items that were looked at, some at a time.`;
    byId('ages-words').textContent = told.items === 0 ? 'Nothing was looked at yet, or nothing is there.' : `${looked} ${giveOrTake(told.unread.share, told.unread.error)} of the bytes were never read.`;
  };

  // ---- Classes

  table('classes-table', 'Slab classes that own memory; shares are of all classes', [
    { ...number('chunk bytes', row => row.chunk_bytes), show: row => swatch(SpanMap.colourOf(row.id, { [row.id]: row.chunk_bytes }), Format.whole(row.chunk_bytes)) },
    number('items', row => row.items),
    number('memory', row => row.spans * 65536, Format.bytes),
    number('share of memory', row => row.memory_share, Format.percent),
    number('share of sets', row => row.set_share, Format.percent),
    number('full', row => share(row.chunks_used, row.chunks), Format.percent),
    number('rounding', row => row.rounding, Format.bytes),
    number('hits', row => row.get_hits),
    number('sets', row => row.cmd_set),
    number('evicted', row => row.evictions),
    number('unread', row => row.evicted_unfetched),
    number('expired', row => row.reclaimed),
    number('age', row => row.age_seconds, Format.seconds),
    number('idle when evicted', row => row.evicted_age_seconds, Format.seconds),
    number('stored again soon', row => row.ghost_hits),
  ], 1);
  const showClasses = classes => {
    const all = name => classes.reduce((sum, row) => sum + row[name], 0);
    const [spans, sets] = [all('spans'), all('cmd_set')];
    tables['classes-table'].show(classes.map(row => ({
      ...row, memory_share: share(row.spans, spans), set_share: share(row.cmd_set, sets), rounding: row.chunks_used * row.chunk_bytes - row.requested_bytes,
    })));
  };

  // ---- Connections

  const host = address => address.replace(/^(tcp6?|unix):/, '').replace(/:\d+$/, '');
  table('addresses-table', 'Connections by address', [
    text('address', row => row.address, 'text'),
    number('connections', row => row.count),
    number('idle for a minute', row => row.idle),
    number('longest idle', row => row.longest, Format.seconds),
    number('RESP clients', row => row.resp),
    number('RESP commands', row => row.commands),
  ], -2);
  table('clients-table', 'RESP clients', [
    text('address', row => row.address, 'text'),
    text('name', row => row.name, 'text'),
    text('library', row => row.library, 'text'),
    number('age', row => row.age_seconds, Format.seconds),
    number('idle', row => row.idle_seconds, Format.seconds),
    number('commands', row => row.commands),
    number('received', row => row.received_bytes, Format.bytes),
    number('replied', row => row.replied_bytes, Format.bytes),
    number('waiting', row => row.waiting_bytes, Format.bytes),
    text('last', row => row.last),
    number('db', row => row.db),
    number('RESP', row => row.resp),
    text('flags', row => row.flags),
  ], -6);
  const showConnections = (told, clients) => {
    const rows = {};
    const of = address => (rows[host(address)] ||= { address: host(address), count: 0, idle: 0, longest: 0, resp: 0, commands: 0 });
    const open = told.connections.filter(one => one.listen_address !== null);
    for (const one of open) {
      const row = of(one.address);
      row.count += 1;
      row.idle += one.idle_seconds >= 60 ? 1 : 0;
      row.longest = Math.max(row.longest, one.idle_seconds);
    }
    for (const one of clients.clients) {
      const row = of(one.address);
      row.resp += 1;
      row.commands += one.commands;
    }
    tables['addresses-table'].show(Object.values(rows));
    tables['clients-table'].show(clients.clients);
    const listeners = told.connections.filter(one => one.listen_address === null).map(one => one.address.replace(/^tcp6?:/, ''));
    const cut = told.next === null ? '' : ' There are more connections than are counted by address here.';
    byId('connections-words').textContent = `Listens on ${listeners.join(', ') || 'nothing'}; ${Format.whole(clients.all)} RESP clients.${cut}`;
  };

  // ---- Commands, slow things

  table('commands-table', 'RESP commands since the start', [
    text('command', row => row.name),
    number('calls', row => row.calls),
    { name: 'µs a call, of those measured', number: true, value: row => row.measured_calls > 0 ? share(row.usec, row.calls) : -1, show: row => row.measured_calls === 0 ? null : row.usec === 0 ? 'below 1' : Format.plain(share(row.usec, row.calls)) },
    number('refused', row => row.rejected_calls),
    number('failed', row => row.failed_calls),
  ], -2);
  table('memcached-table', 'memcached\'s commands since the start, as far as they were measured: one receive in sixteen is', [
    text('command', row => row.name),
    number('measured', row => row.measured_calls),
    { name: 'µs a command', number: true, value: row => share(row.usec, row.measured_calls), show: row => row.usec === 0 ? 'below 1' : Format.plain(share(row.usec, row.measured_calls)) },
    number('median up to, µs', row => row.p50_usec),
    number('99 % up to, µs', row => row.p99_usec),
  ], -2);
  const keyOf = key => key === null ? '' : key.text !== undefined ? JSON.stringify(key.text).slice(1, -1) : `base64: ${key.base64}`;
  table('slow-table', 'Commands that took long (SLOWLOG), without their values', [
    number('number', row => row.id),
    { name: 'time', value: row => row.at_s, show: row => new Date(row.at_s * 1000).toLocaleString('en-GB') },
    number('took', row => row.took_us, us => Format.seconds(us / 1e6)),
    text('command', row => row.command),
    number('words', row => row.words),
    text('first key', row => keyOf(row.key), 'key'),
    text('from', row => row.address, 'text'),
    text('client', row => row.client, 'text'),
  ], -1);
  table('large-table', 'Commands with large requests or replies (COMMANDLOG), without their values', [
    text('what is large', row => row.kind.replace('large-', '')),
    number('number', row => row.id),
    { name: 'time', value: row => row.at_s, show: row => new Date(row.at_s * 1000).toLocaleString('en-GB') },
    number('bytes', row => row.bytes, Format.bytes),
    text('command', row => row.command),
    number('words', row => row.words),
    text('first key', row => keyOf(row.key), 'key'),
    text('from', row => row.address, 'text'),
    text('client', row => row.client, 'text'),
  ], -3);
  table('events-table', 'Events of LATENCY', [
    text('event', row => row.event),
    { name: 'latest', value: row => row.at_s, show: row => new Date(row.at_s * 1000).toLocaleString('en-GB') },
    number('took', row => row.ms, ms => Format.seconds(ms / 1e3)),
  ], -2);
  table('stalls-table', 'What held a worker up for 10 ms or longer', [
    { name: 'time', value: row => row.at_s, show: row => new Date(row.at_s * 1000).toLocaleString('en-GB') },
    number('worker', row => row.worker),
    number('took', row => row.took_us, us => Format.seconds(us / 1e6)),
    text('cause', row => STALLS[row.cause], 'text'),
  ], -1);
  const showSlow = told => {
    const from = told.from_us < 0 ? 'Nothing is listed (slowlog-log-slower-than is -1).' : `RESP commands that took ${Format.seconds(told.from_us / 1e6)} or more.`;
    byId('slow-words').textContent = from + (told.keys_hidden ? KEYS_HIDDEN : '');
    tables['slow-table'].show(told.commands);
    tables['large-table'].show(told.large);
    tables['events-table'].show(told.events);
    tables['stalls-table'].show(told.stalls);
  };

  // ---- Where time goes

  const latency = new Latency.Picture(byId('latency'), byId('latency-seen'), byId('latency-stage'));
  table('latency-table', 'How long requests took, of those that were timed', [
    text('stage', row => row.name),
    text('requests', row => row.what),
    number('median now', row => row.median, Latency.time),
    number('99 % now within', row => row.p99, Latency.time),
    number('99 % within, at worst', row => row.worst, Latency.time),
  ]);
  const micros = us => Latency.time(us * 1e3);
  table('protocols-table', 'The same since the start, by protocol', [
    text('protocol', row => row.protocol),
    text('stage', row => row.stage),
    number('timed', row => row.count),
    number('median', row => row.p50_us, micros),
    number('99 % within', row => row.p99_us, micros),
    number('99.9 % within', row => row.p999_us, micros),
  ]);
  const showLatency = async () => {
    const { step, choice } = state, since = latency.story.last === undefined ? '' : `&since=${latency.story.last}`;
    let told = await get(`/api/v1/latency?step=${step}${since}`);
    if (latency.story.run !== null && told.run !== latency.story.run) told = await get(`/api/v1/latency?step=${step}`);
    if (choice !== state.choice) return;
    latency.show(told, LEVELS[step]);
    tables['latency-table'].show(latency.story.summary());
    tables['protocols-table'].show(told.since_start.filter(row => row.count > 0));
  };

  // ---- Hot keys

  // Of a long key the beginning is known.
  const hotKey = row => row.key === null ? 'not shown' : keyOf(row.key) + (row.key_bytes > HOT_KEY_BYTES ? ` … (${Format.whole(row.key_bytes)} bytes)` : '');
  table('hot-table', 'Keys that are asked for most; each share with how sure it is', [
    { name: 'key', value: row => hotKey(row), className: 'key' },
    { name: 'share of requests', number: true, value: row => row.share, show: row => giveOrTake(row.share, row.error) },
    number('requests a second', row => row.requests_per_second, Format.rate),
    number('bytes a second', row => row.bytes_per_second, Format.bytes),
    number('reads', row => row.reads, Format.percent),
    number('writes', row => Math.max(0, 1 - row.reads - row.deletes), Format.percent),
    number('deletes', row => row.deletes, Format.percent),
    { name: 'hit ratio', number: true, value: row => row.hit_ratio ?? -1, show: row => row.hit_ratio === null ? null : Format.percent(row.hit_ratio) },
    number('value', row => row.value_bytes, Format.bytes),
    number('db', row => row.db),
  ], -2);
  const standsOn = told => {
    const stands = told.samples === told.requests ? 'each was counted' : `by a sample of ${Format.whole(told.samples)}`;
    return told.requests === 0 ? 'Nothing was asked for in the last seconds.' : `Of ${Format.whole(told.requests)} keys asked for in ${Format.plain(told.seconds)} s; ${stands}.`;
  };
  const KEYS_HIDDEN = ' Keys are not shown here: --http-hide-keys or -X is given, or the user who asks may not call KEYS.';
  const showHot = told => {
    byId('hot-words').textContent = standsOn(told) + (told.keys_hidden ? KEYS_HIDDEN : '');
    tables['hot-table'].show(told.keys);
  };

  // ---- Prefixes

  const prefixOf = row => row.none ? 'none' : row.prefix === null ? 'not shown' : keyOf(row.prefix);
  const bytesOrSo = row => row.bytes_error < 1 ? Format.bytes(row.bytes_per_second) : `${Format.bytes(row.bytes_per_second)} ± ${Format.bytes(row.bytes_error)}`;
  table('prefixes-table', 'Prefixes whose keys are asked for most; share, bytes and hit ratio with how sure they are', [
    { name: 'prefix', value: prefixOf, show: row => row.none ? element('em', 'none') : prefixOf(row), className: 'key' },
    { name: 'share of requests', number: true, value: row => row.share, show: row => giveOrTake(row.share, row.error) },
    number('requests a second', row => row.requests_per_second, Format.rate),
    { name: 'bytes a second', number: true, value: row => row.bytes_per_second, show: bytesOrSo },
    number('reads', row => row.reads, Format.percent),
    number('writes', row => Math.max(0, 1 - row.reads - row.deletes), Format.percent),
    number('deletes', row => row.deletes, Format.percent),
    { name: 'hit ratio', number: true, value: row => row.hit_ratio ?? -1, show: row => row.hit_ratio === null ? null : giveOrTake(row.hit_ratio, row.hit_ratio_error) },
    number('misses a second', row => row.misses_per_second, Format.rate),
    number('mean value', row => row.value_bytes, Format.bytes),
    { name: 'share of memory', number: true, value: row => row.memory_share ?? -1, show: row => row.memory_share === null ? null : giveOrTake(row.memory_share, row.memory_error) },
    number('db', row => row.db),
  ], -2);
  // What takes a tenth of the memory at least, and has a hundredth of the requests at most.
  const isIdle = row => row.memory_share - row.memory_error > 0.1 && row.share + row.error < 0.01;
  const showPrefixes = told => {
    const idle = told.requests > 0 ? told.prefixes.filter(isIdle).map(prefixOf) : [];
    const costs = idle.length > 0 ? ` Hardly asked for, with a tenth of the memory and more each: ${idle.join(', ')}.` : '';
    byId('prefixes-words').textContent = standsOn(told) + costs + (told.keys_hidden ? KEYS_HIDDEN : '');
    tables['prefixes-table'].show(told.prefixes);
  };

  // ---- More or less memory

  const forecast = new Forecast.Picture(byId('forecast'));
  table('forecast-table', 'What other memory limits would bring', [
    { name: 'memory limit', number: true, value: row => row.factor, show: row => Forecast.limit(row.limit_bytes) },
    number('of today\'s', row => row.factor, factor => `${factor} ×`),
    { name: 'hit ratio', number: true, value: row => row.hit_ratio, show: row => Forecast.ratio(row) },
    { name: '', value: row => row.vague ? 1 : 0, show: row => row.factor === 1 ? 'counted' : row.vague ? 'vague: its cache was not full for long' : '' },
  ], 1);
  const showForecast = told => {
    forecast.show(told);
    byId('forecast-words').textContent = Forecast.words(told);
    byId('forecast-stands').textContent = Forecast.stands(told);
    tables['forecast-table'].show(told.ready ? Forecast.shown(told) : []);
    const misses = told.fills + told.herd_misses || 0;
    byId('forecast-herds').textContent = misses > 0 ? `Of misses ${Format.percent(share(told.herd_misses, misses))} were of keys that had been missed less than 2 s before and were not stored yet, about: leases (mg with N and R) would save these loads.` : '';
  };

  // ---- Settings

  table('options-table', 'Options of the command line', [
    text('option', row => row.name),
    text('given', row => row.given === null ? '' : row.given || 'yes', 'text'),
    text('default', row => row.default),
    text('effect', row => row.works ? (row.given === null ? 'default' : 'works') : `none here: ${row.why}`, 'text'),
    text('what it does', row => row.help, 'text'),
  ]);
  table('changed-table', 'Settings that are not as at the start, and parameters that CONFIG SET has set', [
    text('setting', row => row.name),
    text('now', row => row.now, 'text'),
    text('at the start', row => row.before, 'text'),
    text('by', row => row.by),
  ]);
  let settings = null;
  const showSettings = () => {
    if (!settings) return;
    const wanted = { given: row => row.given !== null, idle: row => !row.works, all: () => true }[byId('settings-filter').value];
    tables['options-table'].show(settings.options.filter(wanted));
    tables['changed-table'].show([
      ...Object.entries(settings.at_start).map(([name, before]) => ({ name, before, now: settings.settings[name], by: 'a command of either protocol' })),
      ...Object.entries(settings.parameters).map(([name, now]) => ({ name, before: '', now, by: 'CONFIG SET' })),
    ]);
  };
  byId('settings-filter').addEventListener('change', showSettings);

  // ---- The beat

  const charts = new Charts.All(byId('charts'));
  let timer = null, working = false;

  const slowly = async () => {
    showFindings((await get('/api/v1/findings')).findings);
    await showLatency();
    showHot(await get('/api/v1/hotkeys'));
    showPrefixes(await get('/api/v1/prefixes'));
    showForecast(await get('/api/v1/forecast'));
    showMemory(await get('/api/v1/memory'));
    showMap(await get('/api/v1/map'));
    showAges(await get('/api/v1/ages'));
    showClasses((await get('/api/v1/classes')).classes);
    showConnections(await get('/api/v1/connections?max=1024'), await get('/api/v1/clients?max=256'));
    const called = await get('/api/v1/commands');
    for (const [id, rows] of [['commands-table', called.commands], ['memcached-table', called.memcached]]) {
      tables[id].show(Object.entries(rows).map(([name, row]) => ({ name, ...row })));
    }
    showSlow(await get('/api/v1/slow'));
  };

  const beat = async () => {
    timer = null;
    if (working || document.hidden || state.paused) return;
    working = true;
    const { choice } = state;
    try {
      const now = await get('/api/v1/now');
      [state.version, state.figures] = [now.version, now.figures];
      // What another range held stays until the first points of the chosen one are there.
      const known = await history();
      showHead();
      if (known) {
        showTiles();
        showHistory();
      }
      if (state.beats % SLOWLY_EVERY === 0 || state.failed > 0) await slowly();
      if (state.beats % SETTINGS_EVERY === 0 || state.failed > 0) {
        settings = await get('/api/v1/settings');
        showSettings();
      }
      state.beats = choice === state.choice ? state.beats + 1 : 0;
      state.failed = 0;
      state.heard = Date.now();
      document.body.classList.remove('stale');
    } catch (error) {
      if (!(error instanceof Unanswered)) console.error(error);
      state.failed += 1;
      document.body.classList.add('stale');
      const since = state.heard === null ? 'yet' : `for ${Format.seconds(Math.round((Date.now() - state.heard) / 1000))}`;
      verdict('gone', error.status === 401 || error.status === 403
        ? 'The server asks for another user or password: load the page again.'
        : `The server has not answered ${since}: what is below is as old as that.`);
    }
    working = false;
    // A range that was chosen meanwhile is not waited for.
    const chosen = state.failed === 0 && choice !== state.choice;
    plan(chosen ? 0 : PAUSES_MS[Math.min(state.failed, PAUSES_MS.length - 1)]);
  };
  const plan = ms => {
    if (timer !== null) clearTimeout(timer);
    timer = setTimeout(beat, ms);
  };

  document.addEventListener('visibilitychange', () => { if (!document.hidden) plan(0); });

  byId('ranges').addEventListener('click', event => {
    const button = event.target.closest('button');
    if (!button) return;
    state.step = Number(button.dataset.step);
    state.choice += 1;
    byId('ranges').querySelectorAll('button').forEach(one => one.setAttribute('aria-pressed', String(one === button)));
    forget();
    latency.story.forget();
    state.beats = 0;
    plan(0);
  });
  byId('pause').addEventListener('click', () => {
    state.paused = !state.paused;
    byId('pause').textContent = state.paused ? 'go on' : 'pause';
    byId('pause').setAttribute('aria-pressed', String(state.paused));
    if (!state.paused) plan(0);
  });

  // ---- Theme and size

  const root = document.documentElement;
  const dark = () => root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  const redraw = () => { charts.draw(); map.draw(); latency.draw(); showMapLegend(); };
  const showMapLegend = () => { if (tables['map-owners'].rows.length > 0) { tables['map-owners'].show(tables['map-owners'].rows); tables['classes-table'].show(tables['classes-table'].rows); } };
  const sayTheme = () => { byId('theme').textContent = dark() ? 'light' : 'dark'; };
  // Where nothing may be stored, the theme is the system's at each visit.
  const stored = (name, value) => {
    try {
      if (value === undefined) return localStorage.getItem(name);
      localStorage.setItem(name, value);
    } catch { /* not kept */ }
    return null;
  };
  const kept = stored('larder-theme');
  if (kept === 'dark' || kept === 'light') root.dataset.theme = kept;
  byId('theme').addEventListener('click', () => {
    root.dataset.theme = dark() ? 'light' : 'dark';
    stored('larder-theme', root.dataset.theme);
    sayTheme();
    redraw();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { sayTheme(); redraw(); });
  let resized = null;
  window.addEventListener('resize', () => {
    if (resized !== null) clearTimeout(resized);
    resized = setTimeout(redraw, 150);
  });

  sayTheme();
  charts.draw();
  beat();
})();
