// SPDX-License-Identifier: Apache-2.0
// The smallest PNG that every viewer reads: 8-bit RGB, stored (uncompressed) blocks. RFC 2083,
// 1950, 1951.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace posenc::report {

std::vector<std::uint8_t> png(const std::vector<std::uint8_t>& rgb, int width, int height);
std::string base64(const std::vector<std::uint8_t>&);

}  // namespace posenc::report
