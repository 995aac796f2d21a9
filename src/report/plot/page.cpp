// SPDX-License-Identifier: Apache-2.0
// One HTML file with everything inside: no script, style or font from elsewhere.
#include <fmt/format.h>

#include "chart.h"

namespace posenc::report {
namespace {

// The numbers under the pointer: nearest x of every line, from the data beside the picture.
constexpr const char* kScript = R"js(
document.querySelectorAll('figure').forEach(f=>{
  const svg=f.querySelector('svg'), out=f.querySelector('output');
  const numbers=JSON.parse(f.querySelector('script').textContent);
  svg.addEventListener('mousemove',e=>{
    const box=svg.getBoundingClientRect(), w=svg.viewBox.baseVal.width;
    const px=(e.clientX-box.left)*w/box.width, py=(e.clientY-box.top)*svg.viewBox.baseVal.height/box.height;
    if(numbers.rows){
      const image=svg.querySelector('image.heat'), g=n=>+image.getAttribute(n);
      const c=Math.floor((px-g('x'))/g('width')*numbers.rows[0].length), r=Math.floor((py-g('y'))/g('height')*numbers.rows.length);
      const row=numbers.rows[r]; out.textContent=row&&row[c]!==undefined?`${numbers.value} = ${row[c]}  (${numbers.positions?'position '+numbers.positions[r]:'row '+r}, column ${c})`:'';
      return; }
    if(!numbers.series) return;
    const paths=[...svg.querySelectorAll('g.series path')];
    out.textContent=paths.map((p,k)=>{
      const points=(p.getAttribute('d').match(/[ML][^ML]+/g)||[]).map(s=>parseFloat(s.slice(1)));
      if(!points.length) return '';
      let best=0; points.forEach((x,i)=>{ if(Math.abs(x-px)<Math.abs(points[best]-px)) best=i; });
      const s=numbers.series[k], shown=s.y.map((y,i)=>i).filter(i=>s.y[i]!==null&&s.y[i]!==0), i=points.length===s.y.length?best:shown[best];
      return i===undefined?'':`${s.name}: (${Number(s.x[i].toPrecision(6))}, ${Number((s.y[i]??0).toPrecision(6))})`;
    }).filter(Boolean).join('   ');
  });
});
)js";

// </script> must not end the data early.
std::string script_safe(std::string text) {
  for (std::size_t at = 0; (at = text.find("</", at)) != std::string::npos; at += 3)
    text.replace(at, 2, "<\\/");
  return text;
}

}  // namespace

std::string html_page(const std::string& title, const std::vector<Figure>& figures) {
  std::string body;
  for (const Figure& f : figures)
    body += fmt::format(
        "<figure>\n{}<output>&nbsp;</output>\n<figcaption>{}</figcaption>\n"
        "<script type=\"application/json\">{}</script>\n</figure>\n",
        svg(f), escape_xml(f.caption), script_safe(in_utf8(data(f)).dump()));
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{0}</title>\n<style>\n"
      "body{{font-family:Helvetica,Arial,sans-serif;max-width:900px;margin:2em auto;padding:0 "
      "1em;color:#222}}\n"
      "svg{{max-width:100%;height:auto}} figure{{margin:0 0 2em}} figcaption{{color:#444}}\n"
      "output{{display:block;min-height:1.4em;font:13px "
      "monospace;color:#0072B2;white-space:pre-wrap}}\n"
      "</style>\n</head>\n<body>\n<h1>{0}</h1>\n{1}<script>{2}</script>\n</body>\n</html>\n",
      escape_xml(title), body, kScript);
}

std::string stacked_svg(const std::vector<Figure>& figures) {
  if (figures.size() == 1) return svg(figures.front());
  std::string inner;
  double y = 0;
  for (const Figure& f : figures) {
    const std::string picture = svg(f);
    const double height = std::stod(picture.substr(picture.find("height=\"") + 8));
    inner += fmt::format("<svg y=\"{:.0f}\" {}", y, picture.substr(5));
    y += height;
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"{0:.0f}\" "
      "viewBox=\"0 0 860 {0:.0f}\">\n{1}</svg>\n",
      y, inner);
}

}  // namespace posenc::report
