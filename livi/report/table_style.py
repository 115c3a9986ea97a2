"""The style sheet and the script of the report on a table model."""

from livi.report import page_style

STYLE = (
    page_style.STYLE
    + """
h3 { font-size: 17.5px; margin: 30px 0 6px; font-weight: 600 }
a { color: #005a8d; text-decoration-thickness: 1px; text-underline-offset: 2px }
a:focus-visible, button:focus-visible, .scroll:focus-visible { outline: 2px solid #0072b2; outline-offset: 2px }
.kind { font: 600 12px/1 system-ui, sans-serif; letter-spacing: 0.06em; text-transform: uppercase; color: #6a6a70;
  margin: 0 0 14px }
.note { margin: 8px 0 14px; max-width: 54em }
nav ul { list-style: none; padding: 12px 0; margin: 22px 0 26px; display: flex; flex-wrap: wrap; gap: 4px 22px;
  border-top: 0.75px solid #c9c9cc; border-bottom: 0.75px solid #c9c9cc; font-size: 15px } nav li { margin: 0 }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(196px, 1fr)); gap: 12px; margin: 0 0 8px;
  padding: 0; list-style: none }
.cards li { border: 1px solid #dcdce0; border-radius: 6px; padding: 13px 15px 12px; margin: 0 }
.cards b { display: block; font: 600 12.5px/1.3 system-ui, sans-serif; color: #55555a }
.cards span { display: block; font-size: 27px; line-height: 1.25; margin: 3px 0 2px; overflow-wrap: anywhere }
.cards small { display: block; font-size: 13.5px; line-height: 1.35; color: #55555a }
.cards abbr { color: #8a8a90; font-weight: 500; text-decoration: underline dotted; cursor: help; margin-left: 3px }
abbr { text-decoration: underline dotted #9a9aa0; text-underline-offset: 2px; cursor: help }
.beside { border: 0; font: 13px/1.3 system-ui, sans-serif; margin: 4px 0 0; color: #55555a }
.beside .own { color: #1d1d1f }
.beside th, .beside td { padding: 2px 0 0; font-weight: 400; text-align: left } .beside td { text-align: right }
.beside .bar td { padding: 1px 0 3px; line-height: 0 } .beside i { display: block; height: 5px; background: #c9c9cc;
  border-radius: 2px } .beside .own + .bar i { background: #0072b2 }
.part { margin-top: 64px; padding-top: 22px; border-top: 0.75px solid #c9c9cc } .part + h2 { margin-top: 6px }
.more { margin: 0 0 10px } .more summary { font-size: 15px; margin: 6px 0 10px }
.panels { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 8px 28px }
.panels figure { margin: 8px 0 } figure h3 { margin: 8px 0 2px }
.drawing { width: 100%; min-width: 0; overflow: hidden }
.choices { display: flex; flex-wrap: wrap; align-items: center; gap: 6px; margin: 4px 0 6px }
.choices button { font: 500 13px/1 system-ui, sans-serif; color: #1d1d1f; background: #fff; border: 1px solid #b9b9be;
  border-radius: 5px; padding: 7px 11px; cursor: pointer }
.choices button[aria-pressed="true"] { background: #1d1d1f; border-color: #1d1d1f; color: #fff }
tbody th { font-weight: 400 }
td.words { overflow-wrap: anywhere } .plain td.words { min-width: 8em } .plain td:not(.words) { white-space: nowrap }
.wide th, .wide td { white-space: nowrap; overflow-wrap: normal; font-size: 14.5px; padding: 4px 11px }
.wide tbody tr + tr > * { border-top: 0.75px solid #ececee } .wide .given { border-left: 0.75px solid #c9c9cc }
.facts tbody tr + tr > * { border-top: 0.75px solid #ececee } .facts { border-width: 0.75px; border-color: #c9c9cc }
.facts th { width: 34%; color: #55555a; vertical-align: top }
.empty { color: #8a8a90 }
.missing { border-left: 4px solid #e69f00; background: #fdf8ec; padding: 10px 16px; margin: 12px 0 16px }
summary { cursor: pointer; font-weight: 600; margin: 12px 0 }
footer { margin-top: 56px; padding-top: 12px; border-top: 0.75px solid #c9c9cc }
@media (max-width: 680px) {
  .panels { grid-template-columns: minmax(0, 1fr) } nav ul { gap: 2px 18px }
  .cards { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 8px } .cards li { padding: 10px 12px }
  .cards span { font-size: 22px } .cards li:last-child:nth-child(odd) { grid-column: 1 / -1 }
}
@media print {
  nav, .choices, .modebar-container { display: none !important } .cards li { break-inside: avoid }
  .wide th, .wide td { white-space: normal; font-size: 9pt; padding: 2px 5px }
}
"""
)

# Figures are drawn once the words are there. A finger that scrolls must not zoom, so dragging is left to mice, and
# on paper the figures get the width they have there.
SCRIPT = """
(function () {
  "use strict";
  var figures = {};
  var coarse = window.matchMedia("(pointer: coarse)").matches;
  var letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%.()*+-;,=>?@^_`{|}~";
  var settings = { responsive: true, displaylogo: false, showTips: false,
    displayModeBar: coarse ? false : "hover", modeBarButtons: [["toImage", "resetScale2d"]] };
  function unpacked(text) {
    var places = new Uint8Array(128);
    for (var i = 0; i < 85; i++) places[letters.charCodeAt(i)] = i;
    var whole = Math.ceil(text.length / 5), bytes = new DataView(new ArrayBuffer(4 * whole));
    for (var group = 0; group < whole; group++) {
      for (var value = 0, at = 5 * group; at < 5 * group + 5; at++)
        value = 85 * value + (at < text.length ? places[text.charCodeAt(at)] : 84);
      bytes.setUint32(4 * group, value);
    }
    return new Blob([bytes.buffer.slice(0, Math.floor(text.length * 4 / 5))]);
  }
  function inflated(name) {
    var stream = unpacked(document.getElementById(name).textContent).stream();
    return new Response(stream.pipeThrough(new DecompressionStream("deflate-raw"))).text();
  }
  function draw(texts) {
    figures = JSON.parse(texts[0]);
    var library = document.createElement("script");
    library.textContent = texts[1];
    document.head.appendChild(library);
    Object.keys(figures).forEach(function (name) {
      var layout = figures[name].layout;
      if (coarse) layout.dragmode = false;
      Plotly.newPlot(name, figures[name].data, layout, settings);
    });
  }
  if (window.DecompressionStream) window.drawn = Promise.all([inflated("figures"), inflated("library")]).then(draw);
  else document.querySelectorAll(".drawing").forEach(function (place) {
    place.textContent = "This browser is too old to draw the figures; one of 2023 or later does.";
  });
  document.querySelectorAll(".choices button").forEach(function (button) {
    button.addEventListener("click", function () {
      var all = button.parentElement.querySelectorAll("button");
      all.forEach(function (other) { other.setAttribute("aria-pressed", String(other === button)); });
      Plotly.restyle(button.dataset.figure, "visible", JSON.parse(button.dataset.visible));
    });
  });
  window.addEventListener("beforeprint", function () {
    Object.keys(figures).forEach(function (name) {
      var place = document.getElementById(name);
      Plotly.relayout(place, { width: place.closest(".panels") ? 320 : 660, autosize: false });
    });
  });
  window.addEventListener("afterprint", function () {
    Object.keys(figures).forEach(function (name) { Plotly.relayout(name, { width: null, autosize: true }); });
  });
})();
"""
