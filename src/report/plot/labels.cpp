// SPDX-License-Identifier: Apache-2.0
#include "labels.h"

#include <algorithm>
#include <array>

namespace posenc::report {
namespace {

constexpr double kCharacter = 6.2, kAscent = 10, kDescent = 3;  // of 11 pixels

bool meet(const Box& a, const Box& b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

// Liang and Barsky: whether the segment has a point in the box.
bool crosses(const Point& from, const Point& to, const Box& b) {
  double first = 0, last = 1;
  const double dx = to.x - from.x, dy = to.y - from.y;
  const std::array<double, 4> step{-dx, dx, -dy, dy};
  const std::array<double, 4> room{from.x - b.left, b.right - from.x, from.y - b.top,
                                   b.bottom - from.y};
  for (std::size_t i = 0; i < 4; ++i) {
    if (step[i] == 0 && room[i] < 0) return false;
    if (step[i] < 0) first = std::max(first, room[i] / step[i]);
    if (step[i] > 0) last = std::min(last, room[i] / step[i]);
  }
  return first <= last;
}

}  // namespace

Labels::Labels(const Box& plot, std::vector<std::vector<Point>> lines)
    : plot_(plot), lines_(std::move(lines)) {}

double Labels::hidden(const Box& b) const {
  double sum = 0;
  if (b.left < plot_.left || b.right > plot_.right || b.top < plot_.top || b.bottom > plot_.bottom)
    sum += 1e6;
  for (const Box& other : taken_) sum += meet(b, other) ? 1e4 : 0;
  for (const std::vector<Point>& line : lines_)
    for (std::size_t i = 0; i < line.size(); ++i)
      sum += crosses(line[i > 0 ? i - 1 : 0], line[i], b) ? 1 : 0;
  return sum;
}

Point Labels::place(const std::string& text, double at, bool vertical) {
  const double width = kCharacter * static_cast<double>(text.size());
  const double wide = plot_.right - plot_.left - width - 16,
               high = plot_.bottom - plot_.top - kAscent - 12;
  Point best;
  double least = -1;
  for (const double along : {0.0, 1.0, 0.5, 0.25, 0.75})
    for (const bool first : {true, false}) {  // left of a vertical rule, above a horizontal one
      Point p;
      if (vertical)
        p = {first ? at - 6 - width : at + 6, plot_.top + 4 + kAscent + along * high};
      else
        p = {plot_.left + 8 + along * wide, first ? at - 6 : at + 4 + kAscent};
      const double hides = hidden({p.x, p.y - kAscent, p.x + width, p.y + kDescent});
      if (least >= 0 && hides >= least) continue;
      best = p, least = hides;
    }
  taken_.push_back({best.x, best.y - kAscent, best.x + width, best.y + kDescent});
  return best;
}

}  // namespace posenc::report
