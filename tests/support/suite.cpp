// SPDX-License-Identifier: Apache-2.0
#include "support/suite.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

#ifndef POSENC_SOURCE_DIR
#error "POSENC_SOURCE_DIR must name the project"
#endif

namespace posenc::support {
namespace {

template <class T>
T read(const char* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// Dumb on purpose: the value is built from its parts.
double half_value(std::uint16_t h) {
  const int exponent = (h >> 10) & 31;
  const double fraction = h & 1023;
  const double sign = (h & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(fraction + 1024, exponent - 25);
}

double element(const std::string& dtype, const char* p) {
  if (dtype == "F64") return read<double>(p);
  if (dtype == "F32") return read<float>(p);
  if (dtype == "I64") return static_cast<double>(read<std::int64_t>(p));
  if (dtype == "I32") return read<std::int32_t>(p);
  if (dtype == "U8" || dtype == "BOOL") return static_cast<unsigned char>(*p);
  if (dtype == "F16") return half_value(read<std::uint16_t>(p));
  if (dtype == "BF16") {
    const std::uint32_t bits = std::uint32_t{read<std::uint16_t>(p)} << 16;
    float f;
    std::memcpy(&f, &bits, sizeof f);
    return f;
  }
  throw std::runtime_error("suite: dtype " + dtype);
}

std::size_t size_of_element(const std::string& dtype) {
  if (dtype == "F64" || dtype == "I64") return 8;
  if (dtype == "F32" || dtype == "I32") return 4;
  return dtype == "U8" || dtype == "BOOL" ? 1 : 2;
}

std::vector<Index> numbers(const std::string& entry, const std::string& key) {
  const std::size_t open = entry.find('[', entry.find("\"" + key + "\""));
  const std::size_t close = entry.find(']', open);
  std::istringstream in(entry.substr(open + 1, close - open - 1));
  std::vector<Index> v;
  for (std::string word; std::getline(in, word, ',');) v.push_back(std::stoll(word));
  return v;
}

}  // namespace

std::vector<Index> SuiteArray::integers() const {
  std::vector<Index> v;
  for (const double x : value) v.push_back(static_cast<Index>(x));
  return v;
}

Suite::Suite(const std::string& name) {
  const std::string path =
      std::string(POSENC_SOURCE_DIR) + "/conformance/" + name + "/arrays.safetensors";
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("suite: cannot read " + path);
  std::ostringstream all;
  all << file.rdbuf();
  text_ = all.str();
  data_ = 8 + static_cast<std::size_t>(read<std::uint64_t>(text_.data()));
}

bool Suite::has(const std::string& name) const {
  return text_.find("\"" + name + "\":", 8) < data_;
}

SuiteArray Suite::array(const std::string& name) const {
  const std::size_t at = text_.find("\"" + name + "\":", 8);
  if (at >= data_) throw std::runtime_error("suite: no array " + name);
  const std::string entry = text_.substr(at + name.size() + 3, text_.find('}', at) - at);
  SuiteArray a;
  const std::size_t quote = entry.find('"', entry.find("\"dtype\"") + 7) + 1;
  a.dtype = entry.substr(quote, entry.find('"', quote) - quote);
  a.shape = numbers(entry, "shape");
  const std::vector<Index> range = numbers(entry, "data_offsets");
  const std::size_t size = size_of_element(a.dtype);
  for (std::size_t i = data_ + static_cast<std::size_t>(range[0]);
       i < data_ + static_cast<std::size_t>(range[1]); i += size)
    a.value.push_back(element(a.dtype, text_.data() + i));
  return a;
}

}  // namespace posenc::support
