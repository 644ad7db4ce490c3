"use strict";
// Draws every chart as wide as its place, in the colours of the reader's choice, and again when that choice changes.
const dark = window.matchMedia("(prefers-color-scheme: dark)");

function theme(isDark) {
  const style = getComputedStyle(document.documentElement);
  const [ink, soft, line] = ["--ink", "--soft", "--line"].map((name) => style.getPropertyValue(name).trim());
  const font = getComputedStyle(document.body).fontFamily;
  const main = isDark ? "#6ea8e6" : "#2f6fb5";
  return {
    background: "transparent",
    font,
    view: { stroke: null },
    axis: {
      labelColor: soft, titleColor: soft, gridColor: line, domainColor: line, tickColor: line,
      labelFontSize: 11, titleFontSize: 11, titleFontWeight: 500, titlePadding: 8, labelLimit: 130,
    },
    axisBand: { grid: false, domain: false, ticks: false, labelPadding: 6 },
    axisX: { labelFlush: true },
    legend: {
      labelColor: ink, titleColor: soft, labelFontSize: 11, titleFontSize: 11, titleFontWeight: 500,
      gradientThickness: 9, symbolType: "square", titleLimit: 220,
    },
    bar: { color: main },
    line: { color: main },
    rule: { color: main },
    text: { color: soft, fontSize: 11 },
    range: {
      category: isDark ? ["#6ea8e6", "#f0a45d", "#57c3a5"] : ["#2f6fb5", "#dd8426", "#2a9d80"],
      heatmap: isDark
        ? ["#2c343c", "#453f56", "#744461", "#b84a55", "#ee7c4a", "#fbc774"]
        : ["#efeae0", "#fbdfae", "#f7b97b", "#ea7d58", "#c9443f", "#8c1d3b"],
    },
  };
}

function draw() {
  const options = {
    actions: false, renderer: "svg", config: theme(dark.matches), tooltip: { theme: dark.matches ? "dark" : "light" },
  };
  for (const figure of document.querySelectorAll("figure")) {
    const spec = JSON.parse(figure.querySelector("script").textContent);
    vegaEmbed(figure.querySelector(".chart"), spec, options).catch((error) => {
      figure.querySelector(".chart").textContent = `This chart could not be drawn: ${error}`;
    });
  }
}

dark.addEventListener("change", draw);
draw();
