"use strict";
// What the pages add with JavaScript: times in the reader's zone, and the live charts. Everything else is HTML.

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "";

// The server writes times, and reads those of forms, in this zone from the next page on.
if (zone) document.cookie = `gantrymq_zone=${encodeURIComponent(zone)}; path=/; max-age=31536000; SameSite=Strict`;

const clock = new Intl.DateTimeFormat("sv-SE", {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
});

function showTimes(part) {
  for (const one of part.querySelectorAll("time[datetime]")) one.textContent = clock.format(new Date(one.dateTime));
}

// A polled part keeps its last values when a poll fails, so the page says since when they are old.
let failedSince = null;

function showFailure(event) {
  const notice = document.getElementById("not-live");
  const { successful, xhr } = event.detail;
  notice.hidden = Boolean(successful);
  if (successful) {
    failedSince = null;
    notice.textContent = "";
    return;
  }
  failedSince ??= new Date();
  const answer = new DOMParser().parseFromString(xhr.responseText || "", "text/html").body.textContent.trim();
  const reason = answer || "The console does not answer";
  const text = `Not live since ${clock.format(failedSince).slice(11)}: this page shows older values. ${reason}`;
  if (notice.textContent !== text) notice.textContent = text;
}

function ready() {
  showTimes(document);
  document.body.addEventListener("htmx:afterRequest", showFailure);
  if (zone) for (const one of document.querySelectorAll(".zone")) one.textContent = zone;
  document.body.addEventListener("htmx:afterSwap", (event) => showTimes(event.detail.target));
  for (const select of document.querySelectorAll("select[data-submit]")) {
    select.addEventListener("change", () => select.form.requestSubmit());
  }
  for (const all of document.querySelectorAll("input[data-all]")) {
    all.addEventListener("change", () => {
      for (const one of document.querySelectorAll(`input[name="${all.dataset.all}"]`)) one.checked = all.checked;
    });
  }
  const charts = document.querySelector("[data-rates]");
  if (charts && window.uPlot) liveCharts(charts);
}

// Charts

const EVERY_MS = 2000;
const WINDOW_S = 300;
const COLUMNS = { received: 1, delivered: 2, behind: 3 };

const timeOfDay = (seconds) => clock.format(new Date(seconds * 1000)).slice(11);

function colours() {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(`--${name}`).trim();
}

function options(element, names) {
  const colour = colours();
  const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 } };
  // Of one point uPlot makes a scale of two days.
  const times = (plot, values) => values.map((value) => (plot.data[0].length > 1 ? timeOfDay(value) : ""));
  const whole = (plot, values) => values.map((value) => value.toLocaleString("en-US"));
  return {
    width: element.clientWidth,
    height: 150,
    cursor: { y: false },
    legend: { live: false },
    scales: { x: { time: true }, y: { range: (plot, low, high) => [0, Math.max(high * 1.1, 5)] } },
    axes: [{ ...axis, space: 80, values: times }, { ...axis, size: 62, space: 34, values: whole }],
    series: [
      { value: (plot, value) => (value == null ? "–" : timeOfDay(value)) },
      ...names.map((name, number) => ({
        label: name, stroke: colour(`series-${number + 1}`), width: 2, points: { show: false },
        value: (plot, value) => (value == null ? "–" : value.toLocaleString("en-US", { maximumFractionDigits: 1 })),
      })),
    ],
  };
}

function liveCharts(charts) {
  const elements = [...charts.querySelectorAll(".chart")];
  let points = [];
  let plots = [];

  const data = (names) => [points.map((point) => point[0]), ...names.map((name) => points.map((point) => point[COLUMNS[name]]))];

  function draw() {
    for (const plot of plots) plot.destroy();
    plots = elements.map((element) => {
      const names = element.dataset.series.split(",");
      return new uPlot(options(element, names), data(names), element);
    });
  }

  async function poll() {
    if (!document.hidden) {
      const after = points.length ? points[points.length - 1][0] : 0;
      try {
        const answer = await fetch(`${charts.dataset.rates}?after=${Math.floor(after)}`);
        if (answer.ok) {
          const added = (await answer.json()).points.filter((point) => point[0] > after);
          const begin = Date.now() / 1000 - WINDOW_S;
          points = [...points, ...added].filter((point) => point[0] > begin);
          plots.forEach((plot, number) => plot.setData(data(elements[number].dataset.series.split(","))));
        }
      } catch (error) {
        // The console is gone for a moment: the next poll tries again.
      }
    }
    setTimeout(poll, EVERY_MS);
  }

  draw();
  poll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  new ResizeObserver(() => plots.forEach((plot, number) => {
    const width = elements[number].clientWidth;
    if (width && width !== plot.width) plot.setSize({ width, height: 150 });
  })).observe(charts);
}

ready();
