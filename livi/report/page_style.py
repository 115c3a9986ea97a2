"""The part of the style sheet that all pages share."""

STYLE = """
:root { color-scheme: light }
* { box-sizing: border-box }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100% }
body { margin: 0; background: #fff; color: #1d1d1f; font: 17px/1.55 "Source Serif 4", Charter, "Bitstream Charter",
  Cambria, Georgia, serif; font-variant-numeric: lining-nums; overflow-wrap: break-word }
main { max-width: 960px; margin: 0 auto; padding: 48px 28px 64px }
h1 { font-size: 34px; line-height: 1.18; letter-spacing: -0.01em; margin: 0 0 14px; font-weight: 600;
  overflow-wrap: anywhere }
h2 { font-size: 23px; line-height: 1.25; margin: 56px 0 10px; font-weight: 600; scroll-margin-top: 16px }
p, ul { margin: 0 0 14px } ul { padding-left: 22px } li { margin-bottom: 6px }
.lede { font-size: 20px; line-height: 1.5; margin-bottom: 12px; max-width: 46em }
.note, figcaption { font-size: 14.5px; line-height: 1.45; color: #55555a }
figure { margin: 16px 0 22px; min-width: 0 } figcaption { margin-top: 6px; max-width: 58em }
.scroll { overflow-x: auto; margin: 8px 0 10px; /* a shadow at the side where more is hidden */
  background: linear-gradient(#fff, #fff) left / 28px 100% no-repeat local,
    linear-gradient(#fff, #fff) right / 28px 100% no-repeat local,
    linear-gradient(to right, #0002, #0000) left / 11px 100% no-repeat scroll,
    linear-gradient(to left, #0002, #0000) right / 11px 100% no-repeat scroll }
table { border-collapse: collapse; width: 100%; font-size: 15.5px; font-variant-numeric: lining-nums tabular-nums;
  border-top: 1.5px solid #1d1d1f; border-bottom: 1.5px solid #1d1d1f }
th { font-weight: 600; vertical-align: bottom } thead th { border-bottom: 0.75px solid #1d1d1f }
th, td { text-align: right; padding: 5px 12px; overflow-wrap: normal }
th.words, td.words { text-align: left } th:first-child, td:first-child { padding-left: 4px }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 8px 16px; margin: 12px 0 14px;
  font-size: 16px } dd { margin: 0 }
dt, .badge { font: 600 12px/1 system-ui, sans-serif; padding: 5px 8px; border-radius: 4px; white-space: nowrap }
dt { height: max-content; margin-top: 3px; text-align: center } .badge { display: inline-block }
.ok { background: #e6f4ee; color: #00664b } .notice { background: #fdf1d9; color: #7a5200 }
.warning { background: #fbe3d8; color: #9c3d00 }
code { font: 0.88em ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  overflow-wrap: anywhere }
@media (max-width: 680px) {
  body { font-size: 16px } main { padding: 28px 18px 48px } h1 { font-size: 27px } .lede { font-size: 18px }
  h2 { font-size: 21px; margin-top: 44px } th, td { padding: 5px 8px }
  dl { grid-template-columns: minmax(0, 1fr); gap: 4px } dt { justify-self: start; margin-top: 8px }
}
@media print {
  @page { margin: 16mm 14mm } body { font-size: 10.5pt } main { max-width: none; padding: 0 }
  .scroll { overflow: visible; background: none }
  figure, tr, dd { break-inside: avoid } h2, h3 { break-after: avoid } a { color: inherit }
}
"""
