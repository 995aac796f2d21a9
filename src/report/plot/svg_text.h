// SPDX-License-Identifier: Apache-2.0
// What every kind of picture has: its size, words, heading and colours.
#pragma once
#include <array>
#include <string>
#include <string_view>

#include "posenc/io/json.h"

namespace posenc::report {

inline constexpr double kWidth = 860, kHeight = 480, kLeft = 84, kRight = 26, kTop = 64,
                        kBottom = 62;
// Okabe and Ito, 2008, darkest first.
inline constexpr std::array<const char*, 7> kColors{"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                    "#56B4E9", "#E69F00", "#000000"};

// One <text> element; `more`: further attributes.
std::string svg_words(double x, double y, const char* anchor, int size, std::string_view words,
                      std::string_view more = {});
// The head of a picture that carries its numbers.
std::string open_svg(double height, const std::string& title, const Json& numbers);
// As many characters as fit beside each other; what is cut ends in dots, between two characters.
std::string fitting(const std::string& words, double width, double character);
std::string heading(const std::string& title, const std::string& subtitle);
// What the picture cannot show, in a line of its own; `used` grows by its height.
std::string note_text(const std::string& note, double top, double& used);

}  // namespace posenc::report
