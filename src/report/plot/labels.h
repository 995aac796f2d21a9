// SPDX-License-Identifier: Apache-2.0
// Where the label of a rule stands: inside the plot, off the lines and off the other labels.
#pragma once
#include <string>
#include <vector>

namespace posenc::report {

struct Point {
  double x = 0, y = 0;
};
struct Box {
  double left = 0, top = 0, right = 0, bottom = 0;
};

class Labels {
 public:
  // The plot, and its lines in pixels.
  Labels(const Box& plot, std::vector<std::vector<Point>> lines);
  // Left end of the baseline of a text beside a rule `at` pixels from the top (or the left), where
  // it hides least of what is drawn.
  Point place(const std::string& text, double at, bool vertical);

 private:
  double hidden(const Box&) const;
  Box plot_;
  std::vector<std::vector<Point>> lines_;
  std::vector<Box> taken_;
};

}  // namespace posenc::report
