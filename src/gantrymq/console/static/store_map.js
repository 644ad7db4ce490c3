"use strict";
// The store map with the keyboard: one Tab stop for each strip, arrow keys between its cells, and the facts of the cell below.

const map = document.querySelector("[data-map]");
const detail = document.getElementById("detail");

function tell(cell) {
  const { state, size, used, more } = cell.dataset;
  const written = used === "–" ? "" : `, ${used} written`;
  detail.textContent = `${cell.getAttribute("aria-label")}: ${size}${written}${more ? `. ${more}` : ""}`;
}

function above(cells, at, step) {
  // The nearest cell of the next row in the direction of step.
  const here = cells[at].getBoundingClientRect();
  let found = at;
  for (let number = at + step; number >= 0 && number < cells.length; number += step) {
    const there = cells[number].getBoundingClientRect();
    if (Math.abs(there.top - here.top) > 2 && Math.abs(there.left - here.left) < 2) return number;
    if (Math.abs(there.top - here.top) > 2) found = number;
    if (Math.abs(there.top - here.top) > 2 * here.height) break;
  }
  return found;
}

for (const strip of map.querySelectorAll(".cells")) {
  const cells = [...strip.querySelectorAll(".cell")];
  let current = 0;
  cells.forEach((cell, number) => {
    cell.tabIndex = number === 0 ? 0 : -1;
    cell.addEventListener("focus", () => {
      cells[current].tabIndex = -1;
      current = number;
      cell.tabIndex = 0;
      tell(cell);
    });
    cell.addEventListener("mouseenter", () => tell(cell));
  });
  strip.addEventListener("keydown", (event) => {
    const moves = {
      ArrowRight: () => Math.min(current + 1, cells.length - 1),
      ArrowLeft: () => Math.max(current - 1, 0),
      ArrowDown: () => above(cells, current, 1),
      ArrowUp: () => above(cells, current, -1),
      Home: () => 0,
      End: () => cells.length - 1,
    };
    const move = moves[event.key];
    if (!move || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    cells[move()].focus();
  });
}
