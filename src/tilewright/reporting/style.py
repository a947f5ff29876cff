"""How a report looks, in both colour schemes, on paper and on a phone; and its small script.

Nothing depends on the script, which sorts tables, copies text and opens what a link leads to: some
viewers of files forbid scripts.  Colours are those of Okabe and Ito, which the colour-blind tell
apart; no colour says something that words do not.
Read next: `page.py`.
"""

CSS = """
:root{color-scheme:light dark;--paper:#fdfcfa;--raised:#f5f3ef;--ink:#1d1c1a;--muted:#66625c;
--line:#e2ded7;--rail:#e9e5de;--accent:#0072b2;--lead:#d55e00;--good:#00795a;--bad:#b3421d;
--plain:#0072b2;--faint:#9bb6c7;--k1:#8a8479;--k2:#cc79a7;--k3:#56b4e9;--k4:#e69f00;--k5:#d55e00;
--k6:#009e73;--mono:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace}
@media (prefers-color-scheme:dark){:root{--paper:#151618;--raised:#1d1f22;--ink:#e9e7e3;
--muted:#a09c95;--line:#313438;--rail:#2b2e32;--accent:#6cbcf0;--lead:#f0883e;--good:#45c79b;
--bad:#f0883e;--plain:#6cbcf0;--faint:#4a6475;--k1:#8f8b84}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,
"Segoe UI",Roboto,"Noto Sans",sans-serif;font-variant-numeric:tabular-nums}
main{max-width:70rem;margin:0 auto;padding:3rem 1.5rem 5rem}
h1{font-size:2rem;line-height:1.15;letter-spacing:-.02em;margin:.2rem 0 .3rem;font-weight:650;
overflow-wrap:anywhere}
h2{font-size:1.15rem;letter-spacing:-.005em;margin:3.4rem 0 .3rem;font-weight:650;
padding-top:1.1rem;border-top:1px solid var(--line)}
h3{font-size:.86rem;margin:1.5rem 0 .35rem;font-weight:650}
p{margin:.3rem 0 .8rem;max-width:44rem}
.eyebrow{color:var(--muted);font-size:.82rem;letter-spacing:.01em;margin:0}
.lead,.note,figcaption{color:var(--muted)}
.note,figcaption{font-size:.86rem}
a{color:var(--accent);text-decoration:none}
a:hover,a:focus-visible{text-decoration:underline}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px;border-radius:2px}
nav{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin:1.3rem 0 0;font-size:.88rem}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:1.4rem 2rem;
margin:2rem 0 1.6rem}
.figures dt{color:var(--muted);font-size:.82rem}
.figures dd{margin:0;font-size:1.75rem;line-height:1.2;letter-spacing:-.02em;font-weight:600}
.figures .of{display:block;font-size:.82rem;color:var(--muted);letter-spacing:0;font-weight:400;
line-height:1.4;margin-top:.15rem}
.facts{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1.2rem;margin:.8rem 0;
font-size:.9rem}
.facts dt{color:var(--muted)}.facts dd{margin:0;overflow-wrap:anywhere}
.wide-table{overflow-x:auto;margin:.8rem 0;-webkit-overflow-scrolling:touch}
table{border-collapse:collapse;width:100%;font-size:.88rem}
th{font-weight:500;color:var(--muted);text-align:left;font-size:.8rem;vertical-align:bottom;
padding:.3rem .9rem .4rem 0;border-bottom:1px solid var(--line);white-space:nowrap}
th .unit{display:block;font-size:.74rem}
td{padding:.42rem .9rem .42rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td:last-child,th:last-child{padding-right:0}
th.n,td.n{text-align:right;white-space:nowrap}
td.name{min-width:13rem;max-width:24rem;overflow-wrap:anywhere}
td .sub{display:block;color:var(--muted);font-size:.78rem;line-height:1.35}
td.side{white-space:nowrap}
tr:target td,tr:hover td{background:var(--raised)}
th[data-sort]{cursor:pointer}th[data-sort]:hover{color:var(--ink)}
th[aria-sort]{color:var(--ink)}
.bar{display:block;margin-top:.3rem;margin-left:auto}
.rail{fill:var(--rail)}.share{fill:var(--accent)}.roofed{fill:var(--lead)}
.good{color:var(--good)}.bad{color:var(--bad)}
svg text{font:11px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:var(--muted);
font-variant-numeric:tabular-nums}
svg text.title{fill:var(--ink)}
svg{max-width:100%;height:auto;display:block}
svg.spark,svg.strip,svg.bar{height:auto;max-width:none}
.grid{stroke:var(--line);fill:none}.axis{stroke:var(--muted);fill:none;stroke-width:1}
.line{stroke:var(--accent);fill:none;stroke-width:1.6;stroke-linejoin:round}
.guide{stroke:var(--muted);stroke-dasharray:3 4;fill:none}
.dots{fill:none;stroke-linecap:round;stroke-width:3.4}
.plain{stroke:var(--plain);stroke-opacity:.75}.faint{stroke:var(--faint)}
.mark{stroke:var(--accent);stroke-width:4.5}
.ticks{fill:none;stroke-width:1.3}
.kind-instantiate{stroke:var(--k1)}.kind-compile{stroke:var(--k2)}.kind-verify{stroke:var(--k3)}
.kind-run{stroke:var(--k4)}.kind-wrong{stroke:var(--k5)}.kind-timeout{stroke:var(--k6)}
i[class^=kind]{display:inline-block;width:.25rem;height:.8rem;margin-right:.5rem;
vertical-align:-.1rem;border-left:.25rem solid}
i.kind-instantiate{border-color:var(--k1)}i.kind-compile{border-color:var(--k2)}
i.kind-verify{border-color:var(--k3)}i.kind-run{border-color:var(--k4)}
i.kind-wrong{border-color:var(--k5)}i.kind-timeout{border-color:var(--k6)}
.lead rect,path.lead{fill:var(--lead)}
.roof{stroke:var(--ink);fill:none;stroke-width:1.3}svg text.roof-name{fill:var(--ink)}
.dot{fill:var(--k1);fill-opacity:.45;stroke:var(--k1);stroke-width:1.2}
.side-arithmetic,.side-matrix-units{fill:var(--lead);stroke:var(--lead)}
.side-memory,.side-cache{fill:var(--accent);stroke:var(--accent)}
a:hover .dot,a:focus .dot{fill-opacity:.85}
.key{display:inline-block;width:.7rem;height:.7rem;border-radius:50%;margin-right:.4rem;
vertical-align:-.05rem;background:var(--k1)}
.key.of-arithmetic{background:var(--lead)}.key.of-memory{background:var(--accent)}
.lane{fill:var(--k1)}.lane.device{fill:var(--accent)}
figure{margin:1rem 0}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(18rem,1fr));gap:.5rem 2rem}
details{border-bottom:1px solid var(--line)}
summary{cursor:pointer;padding:.55rem 0;display:flex;gap:1rem;align-items:baseline;
list-style:none}
summary::-webkit-details-marker{display:none}
summary::before{content:"";flex:none;width:.42rem;height:.42rem;
border-right:1.6px solid var(--muted);
border-bottom:1.6px solid var(--muted);transform:rotate(-45deg);transition:transform .12s}
details[open]>summary::before{transform:rotate(45deg)}
summary .what{flex:1;min-width:0;overflow-wrap:anywhere}
summary .n{color:var(--muted);white-space:nowrap;font-size:.88rem}
details>.inside{padding:0 0 1.6rem 1.4rem}
details details>summary{font-size:.88rem}
details details{border-bottom:0}
pre{background:var(--raised);border-radius:6px;padding:.8rem 1rem;overflow:auto;max-height:30rem;
font:12px/1.5 var(--mono);margin:.4rem 0 .8rem;tab-size:2}
pre.command{max-height:none;white-space:pre-wrap;overflow-wrap:anywhere}
code{font:.92em var(--mono)}
button{font:inherit;font-size:.8rem;color:var(--muted);border:1px solid var(--line);
border-radius:5px;padding:.1rem .6rem;cursor:pointer;background:var(--raised);position:absolute;
right:.6rem;margin-top:.9rem}
.inside,#about{position:relative}
footer{color:var(--muted);font-size:.86rem;margin-top:4rem;border-top:1px solid var(--line);
padding-top:1rem}
@media (max-width:40rem){main{padding:1.6rem 1rem 3rem}h1{font-size:1.5rem}
h2{margin-top:2.4rem}.figures{grid-template-columns:1fr 1fr;gap:1rem}.figures dd{font-size:1.4rem}
.facts{grid-template-columns:1fr;gap:0}.facts dd{margin-bottom:.5rem}
td.name{min-width:9.5rem;max-width:11rem;position:sticky;left:0;background:var(--paper)}
th.name{position:sticky;left:0;background:var(--paper)}
details>.inside{padding-left:0}.pair{grid-template-columns:1fr}
summary .trials{display:none}
.scroll{overflow-x:auto}svg.wide{min-width:38rem}}
@media print{main{max-width:none;padding:0}body{font-size:10.5pt}button,nav{display:none}
h2{break-after:avoid}figure,tr,.figures{break-inside:avoid}pre{max-height:none;white-space:pre-wrap;
overflow-wrap:anywhere}.wide-table{overflow:visible}a{color:inherit}}
"""

SCRIPT = """
(function(){
function open(){var e=document.getElementById(location.hash.slice(1));
while(e){if(e.tagName=="DETAILS")e.open=true;e=e.parentElement}}
addEventListener("hashchange",open);open();
document.querySelectorAll("th[data-sort]").forEach(function(h){
h.tabIndex=0;
function sort(){var t=h.closest("table"),b=t.tBodies[0],k=h.cellIndex,
up=h.getAttribute("aria-sort")=="descending"?1:-1;
t.querySelectorAll("th").forEach(function(o){o.removeAttribute("aria-sort")});
h.setAttribute("aria-sort",up>0?"ascending":"descending");
function of(r){var v=r.cells[k].dataset.v;return v===undefined?r.cells[k].textContent:+v}
Array.from(b.rows).sort(function(x,y){var a=of(x),c=of(y);
return up*(typeof a=="number"?a-c:a.localeCompare(c))}).forEach(function(r){b.appendChild(r)})}
h.addEventListener("click",sort);
h.addEventListener("keydown",function(e){if(e.key=="Enter")sort()})});
if(navigator.clipboard)document.querySelectorAll("pre").forEach(function(p){
var b=document.createElement("button");b.textContent="Copy";
b.addEventListener("click",function(){navigator.clipboard.writeText(p.textContent);
b.textContent="Copied"});p.parentElement.insertBefore(b,p)});
})();
"""
