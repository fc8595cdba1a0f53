"""The script of a page: tables that sort and filter. Without it they are plain tables.

A heading becomes a button, so the keyboard works as everywhere. The script puts no text from the page into HTML.
"""

from __future__ import annotations

SCRIPT = """
'use strict';
(function () {
  function key(row, column) {
    const cell = row.cells[column];
    if (!cell) return '';
    const given = cell.getAttribute('data-sort');
    const text = given === null ? cell.textContent.trim() : given;
    const number = Number(text);
    return text !== '' && Number.isFinite(number) ? number : text;
  }
  function compare(a, b) {
    if (typeof a === 'number' && typeof b === 'number') return a - b;
    if (typeof a === 'number') return -1;
    if (typeof b === 'number') return 1;
    return a.localeCompare(b, undefined, {numeric: true, sensitivity: 'base'});
  }
  function sort(table, column, heads) {
    const head = heads[column];
    const falls = head.classList.contains('kk-n');
    const before = head.getAttribute('aria-sort');
    const order = before === null ? (falls ? 'descending' : 'ascending')
      : before === 'ascending' ? 'descending' : 'ascending';
    heads.forEach(function (one) { one.removeAttribute('aria-sort'); });
    head.setAttribute('aria-sort', order);
    const body = table.tBodies[0];
    const sign = order === 'ascending' ? 1 : -1;
    Array.from(body.rows)
      .map(function (row, index) { return {row: row, key: key(row, column), index: index}; })
      .sort(function (a, b) {
        if (a.key === '' || b.key === '') return (a.key === '') - (b.key === '') || a.index - b.index;
        return sign * compare(a.key, b.key) || a.index - b.index;
      })
      .forEach(function (entry) { body.appendChild(entry.row); });
  }
  document.querySelectorAll('table[data-sortable]').forEach(function (table) {
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach(function (head, column) {
      const button = document.createElement('button');
      button.type = 'button';
      button.className = 'kk-sort';
      while (head.firstChild) button.appendChild(head.firstChild);
      head.appendChild(button);
      button.addEventListener('click', function () { sort(table, column, heads); });
    });
  });
  document.querySelectorAll('table[data-filterable]').forEach(function (table) {
    const rows = Array.from(table.tBodies[0].rows);
    if (rows.length < 2) return;
    const line = document.createElement('div');
    line.className = 'kk-filter';
    const input = document.createElement('input');
    input.type = 'search';
    input.placeholder = 'Filter';
    input.setAttribute('aria-label', 'Filter ' + (table.getAttribute('aria-label') || 'rows'));
    const shown = document.createElement('span');
    shown.setAttribute('role', 'status');
    line.append(input, shown);
    table.closest('.kk-scroll').before(line);
    input.addEventListener('input', function () {
      const words = input.value.toLowerCase().split(/\\s+/).filter(Boolean);
      let count = 0;
      rows.forEach(function (row) {
        const text = row.textContent.toLowerCase();
        const fits = words.every(function (word) { return text.includes(word); });
        row.hidden = !fits;
        count += fits ? 1 : 0;
      });
      shown.textContent = words.length ? count + ' of ' + rows.length : '';
    });
  });
})();
"""
