// SPDX-License-Identifier: Apache-2.0
#include "svg_text.h"

#include <fmt/format.h>

#include "utf8.h"

namespace posenc::report {

std::string svg_words(double x, double y, const char* anchor, int size, std::string_view words,
                      std::string_view more) {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\" {}>{}</text>\n", x, y,
      anchor, size, more, escape_xml(words));
}

std::string open_svg(double height, const std::string& title, const Json& numbers) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 "
      "0 {0:.0f} {1:.0f}\" role=\"img\" aria-label=\"{2}\" font-family=\"Helvetica, Arial, "
      "'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', sans-serif\">\n"
      "<title>{2}</title>\n<metadata>{3}</metadata>\n"
      "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#ffffff\"/>\n",
      kWidth, height, escape_xml(title), escape_xml(in_utf8(numbers).dump()));
}

std::string fitting(const std::string& words, double width, double character) {
  const auto most = static_cast<std::size_t>(width / character);
  if (words.size() <= most) return words;
  std::size_t end = most - 3;
  while (end > 0 && (static_cast<unsigned char>(words[end]) & 0xc0) == 0x80) --end;
  return words.substr(0, end) + "...";
}

std::string heading(const std::string& title, const std::string& subtitle) {
  return svg_words(kLeft, 26, "start", 17, title, "font-weight=\"bold\"") +
         svg_words(kLeft, 46, "start", 12, fitting(subtitle, kWidth - kLeft - kRight, 6.6),
                   "fill=\"#555\"");
}

std::string note_text(const std::string& note, double top, double& used) {
  if (note.empty()) return "";
  const double y = top + used;
  used += 20;
  return svg_words(kLeft, y, "start", 12, note,
                   "class=\"note\" font-style=\"italic\" fill=\"#333\"");
}

}  // namespace posenc::report
