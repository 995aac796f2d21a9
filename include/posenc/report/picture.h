// SPDX-License-Identifier: Apache-2.0
// SVG to PNG by rsvg-convert, which Debian has in librsvg2-bin.
#pragma once
#include <string>
#include <string_view>

namespace posenc::report {

// Twice as many pixels as the picture is wide and high. Throws InputError: rsvg-convert is not
// there, or fails.
std::string png_of_svg(std::string_view svg);

}  // namespace posenc::report
