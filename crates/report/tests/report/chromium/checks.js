// Runs in the page and returns a list of problems.
(() => {
  const problems = [];
  const tell = (problem) => problems.length < 20 && problems.push(problem);
  const name = (element) => element.tagName + '.' + (element.getAttribute('class') || '') + ' ' + (element.textContent || '').trim().slice(0, 40);
  const width = document.documentElement.clientWidth;

  if (document.documentElement.scrollWidth > width) tell(`the page is ${document.documentElement.scrollWidth} wide in ${width}`);

  // every line of text: no two may cover each other, none may be outside
  const lines = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.data.trim() || node.parentElement.closest('script, title, desc') || !node.parentElement.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    // names in a flame graph are cut off by their boxes
    const scroller = node.parentElement.closest('.scroll, .copy') || (node.parentElement.closest('.flame') && node.parentElement.previousElementSibling);
    const window = scroller && scroller.getBoundingClientRect();
    // words are short enough for a phone: none may break
    if (!scroller && range.getClientRects().length > 1) {
      for (const word of node.data.matchAll(/(?<!\S)[A-Za-z.,:;()]{2,16}(?!\S)/g)) {
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        if (range.getClientRects().length > 1) tell(`a broken word: ${word[0]}`);
      }
      range.selectNodeContents(node);
    }
    for (const r of range.getClientRects()) {
      if (!window && (r.left < -0.5 || r.right > width + 0.5)) tell(`outside: ${node.data.trim().slice(0, 40)} ${r.left}..${r.right}`);
      // text scrolled out of its table covers nothing
      const seen = window ? { left: Math.max(r.left, window.left), right: Math.min(r.right, window.right), top: Math.max(r.top, window.top), bottom: Math.min(r.bottom, window.bottom), height: r.height } : r;
      if (seen.right - seen.left >= 1 && seen.bottom - seen.top >= 1) lines.push({ r: seen, node });
    }
  }
  lines.sort((a, b) => a.r.top - b.r.top);
  lines.forEach((a, at) => {
    for (let next = at + 1; next < lines.length && lines[next].r.top < a.r.bottom; next++) {
      const b = lines[next];
      if (a.node === b.node) continue;
      const across = Math.min(a.r.right, b.r.right) - Math.max(a.r.left, b.r.left);
      // line boxes are higher than their letters: a third of overlap still leaves them apart
      const down = Math.min(a.r.bottom, b.r.bottom) - Math.max(a.r.top, b.r.top);
      if (across > 1 && down > 0.34 * Math.min(a.r.height, b.r.height)) tell(`covered: "${a.node.data.trim().slice(0, 30)}" and "${b.node.data.trim().slice(0, 30)}"`);
    }
  });
  if (lines.length < 5) tell('hardly any text was found');

  // shapes stay inside their figure
  for (const figure of document.querySelectorAll('figure')) {
    const box = figure.getBoundingClientRect();
    for (const shape of figure.querySelectorAll('rect, line, circle, polyline, text, path')) {
      if (!shape.checkVisibility() || (shape.tagName === 'text' && shape.closest('.flame'))) continue;
      const r = shape.getBoundingClientRect();
      if (r.width + r.height === 0) continue;
      if (r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1) tell(`outside its figure: ${name(shape)}`);
    }
    if (!figure.querySelector('details table')) tell(`no table behind ${name(figure)}`);
  }

  // images have a title and a description
  for (const svg of document.querySelectorAll('svg[role=img]')) {
    const said = svg.getAttribute('aria-labelledby').split(' ').map((id) => document.getElementById(id));
    if (said.some((element) => !element || !element.textContent.trim())) tell(`a silent image: ${name(svg)}`);
  }
  for (const svg of document.querySelectorAll('svg')) {
    if (!svg.closest('svg[role=img]')) tell(`an image without a role: ${name(svg)}`);
  }
  const ids = [...document.querySelectorAll('[id]')].map((element) => element.id);
  if (new Set(ids).size !== ids.length) tell('an id occurs twice');

  // numbers: the value behind each figure is the record's, the shown text is that value, rounded
  const run = JSON.parse(document.getElementById('run').textContent);
  const rows = (title) => {
    const table = [...document.querySelectorAll('table')].find((table) => table.caption.textContent.startsWith(title));
    if (!table) return [];
    const names = [...table.querySelectorAll('th')].map((th) => th.firstChild.data.trim());
    const units = [...table.querySelectorAll('th')].map((th) => (th.querySelector('small') || { textContent: '' }).textContent);
    return [...table.querySelectorAll('tbody tr')].map((row) => [...row.cells].map((cell, at) => {
      const data = cell.querySelector('data');
      return { name: names[at], unit: units[at], text: cell.textContent, value: data ? Number(data.value) : undefined };
    }));
  };
  const trials = rows('Trials');
  if (trials.length !== run.end.trials.length) tell(`${trials.length} rows for ${run.end.trials.length} trials`);
  trials.forEach((row, at) => row.forEach((cell) => {
    const record = cell.name.split('.').reduce((value, member) => (value === null ? null : value[member]), run.end.trials[at]);
    if (typeof record === 'number' ? cell.value !== record : record !== null && typeof record !== 'string' && cell.text !== String(record)) tell(`trial ${at} ${cell.name}: ${cell.text} is ${record}`);
  }));
  const ladder = rows('Ladder');
  if (ladder.length !== run.end.pairs.length) tell(`${ladder.length} rows for ${run.end.pairs.length} pairs`);
  // Rows are sorted by rate: each row is a different pair.
  const left = [...run.end.pairs];
  ladder.forEach((row, at) => {
    const found = left.findIndex((pair) => {
      const known = { sent: pair.sent_pps.median, delivered: pair.delivered_pps.median, spread: pair.delivered_pps.spread_ratio };
      return row.every((cell) => !(cell.name in known) || cell.value === known[cell.name]);
    });
    if (found < 0) tell(`row ${at} of the ladder is no pair: ${row.map((cell) => cell.text).join(' ')}`);
    else left.splice(found, 1);
  });
  const factors = { pps: 1, kpps: 1e3, Mpps: 1e6, '%': 0.01, '% of sent': 0.01, 'µs': 1e3, 'ns/pkt': 1 };
  for (const row of [...ladder, ...rows('Rate receipts'), ...rows('Where the packets')]) {
    for (const cell of row) {
      if (cell.value === undefined || !(cell.unit in factors) || /[<>]/.test(cell.text)) continue;
      const shown = Number(cell.text.replaceAll(',', ''));
      const decimals = (cell.text.split('.')[1] || '').length;
      const factor = factors[cell.unit];
      if (!(Math.abs(shown * factor - cell.value) <= 0.501 * factor * 10 ** -decimals)) tell(`${cell.name}: shown ${cell.text} ${cell.unit}, is ${cell.value}`);
    }
  }
  return problems;
})()
