// SPDX-License-Identifier: Apache-2.0
#include "conformance/runner/suite.h"

#include <algorithm>
#include <charconv>

#include "posenc/core/error.h"
#include "posenc/core/printable.h"

namespace posenc::conformance {
namespace {

Index parse_index(std::string_view text, std::string_view whole) {
  Index value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    refuse("case", "an index of an array must be an integer", whole);
  return value;
}

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

std::vector<std::string_view> split(std::string_view s, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t from = 0;;) {
    const std::size_t to = s.find(separator, from);
    parts.push_back(trimmed(s.substr(from, to - from)));
    if (to == std::string_view::npos) return parts;
    from = to + 1;
  }
}

// One item of name[...]: a number drops the axis, a:b:step keeps it.
void take(Slice& s, std::size_t axis, std::string_view item) {
  const Index size = s.shape[axis];
  const auto parts = split(item, ':');
  const auto bound = [&](std::string_view text, Index fallback) {
    if (text.empty()) return fallback;
    const Index i = parse_index(text, s.text);
    return i < 0 ? i + size : i;
  };
  if (parts.size() > 3) refuse("case", "an axis takes at most start:stop:step", s.text);
  const Index first = bound(parts[0], 0);
  if (first < 0 || first >= size) refuse("case", "an index of an array lies outside it", s.text);
  const Index last = parts.size() == 1 ? first + 1 : bound(parts[1], size);
  const Index given = parts.size() < 3 || parts[2].empty() ? 1 : parse_index(parts[2], s.text);
  if (last > size || first >= last || given < 1)
    refuse("case", "an index of an array lies outside it", s.text);
  const Index step = std::min(given, size);  // a longer one leaves the first too
  s.offset += first * s.stride[axis];
  s.shape[axis] = (last - first + step - 1) / step;
  s.stride[axis] *= step;
  if (parts.size() == 1) s.shape[axis] = -1;
}

void drop_taken_axes(Slice& s) {
  std::vector<Index> shape, stride;
  for (std::size_t i = 0; i < s.shape.size(); ++i) {
    if (s.shape[i] < 0) continue;
    shape.push_back(s.shape[i]);
    stride.push_back(s.stride[i]);
  }
  s.shape = std::move(shape);
  s.stride = std::move(stride);
}

constexpr std::size_t kLongestName = 1000;
constexpr std::string_view kWeights = "weights:";

// The tensors of the case's model.
const Arrays& weights_of(const Case& c) {
  const Json dir = c.parameter("$model_dir");
  const auto found = c.suite.weights.find(dir.as_string());
  if (found != c.suite.weights.end()) return found->second;
  const std::filesystem::path file = c.suite.dir / dir.as_string() / "model.safetensors";
  return c.suite.weights[dir.as_string()] = read_safetensors(file);
}

}  // namespace

Suite parse_suite(const Json& json, const std::filesystem::path& dir) {
  Suite suite;
  suite.dir = dir;
  const std::filesystem::path file = dir / "cases.json";
  const Json* cases = json.find("cases");
  if (cases == nullptr || !cases->is_array())
    throw FormatError(file.string(), "#/cases", "must be a list of cases");
  for (std::size_t i = 0; i < cases->as_array().size(); ++i) {
    const Json* name = cases->as_array()[i].find("name");
    if (name == nullptr || !name->is_string())
      throw FormatError(file.string(), "#/cases/" + std::to_string(i), "has no name");
    // A filter is matched by recursion over the name.
    if (name->as_string().size() > kLongestName)
      throw FormatError(file.string(), "#/cases/" + std::to_string(i),
                        "has a name of more than 1000 bytes");
  }
  const Json* name = json.find("suite");
  suite.name =
      name != nullptr && name->is_string()
          ? name->as_string()
          : printable(std::filesystem::absolute(dir).filename().string(), std::string::npos);
  suite.cases = *cases;
  return suite;
}

Suite load_suite(const std::filesystem::path& dir) {
  Suite suite = parse_suite(read_json(dir / "cases.json"), dir);
  const std::filesystem::path arrays = dir / "arrays.safetensors";
  if (std::filesystem::exists(arrays)) suite.arrays = read_safetensors(arrays);
  return suite;
}

bool Case::has_array(std::string_view wanted) const {
  for (const char* group : {"inputs", "outputs"})
    if (const Json* names = json.find(group))
      if (names->find(wanted) != nullptr) return true;
  return suite.arrays.count(std::string(wanted)) > 0;
}

const Array& Case::array(std::string_view wanted) const {
  if (wanted.substr(0, kWeights.size()) == kWeights) {
    const Arrays& all = weights_of(*this);
    const auto tensor = all.find(std::string(wanted.substr(kWeights.size())));
    if (tensor == all.end()) refuse("case", "the model has no tensor of that name", wanted);
    return tensor->second;
  }
  std::string full(wanted);
  for (const char* group : {"inputs", "outputs"})
    if (const Json* names = json.find(group))
      if (const Json* stored = names->find(wanted)) full = stored->as_string();
  const auto found = suite.arrays.find(full);
  if (found == suite.arrays.end()) refuse("case", "no array of that name", wanted);
  return found->second;
}

Json Case::parameter(std::string_view text) const {
  if (text.empty() || text.front() != '$') return Json(text);
  const Json* at = json.find("params");
  if (at != nullptr) at = at->at_pointer("/" + std::string(text.substr(1)));
  if (at == nullptr) refuse("case", "no such parameter", text);
  return *at;
}

Index Slice::count() const {
  Index n = 1;
  for (const Index size : shape) n *= size;
  return n;
}

std::vector<Index> Slice::offsets() const {
  std::vector<Index> out;
  const Index n = count();
  out.reserve(static_cast<std::size_t>(n));
  std::vector<Index> at(shape.size(), 0);
  for (Index i = 0; i < n; ++i) {
    Index flat = offset;
    for (std::size_t a = 0; a < shape.size(); ++a) flat += at[a] * stride[a];
    out.push_back(flat);
    for (std::size_t a = shape.size(); a-- > 0;) {
      if (++at[a] < shape[a]) break;
      at[a] = 0;
    }
  }
  return out;
}

std::vector<double> Slice::values() const {
  const std::vector<double> all = array->doubles();
  std::vector<double> out;
  for (const Index i : offsets()) {
    const double v = all[static_cast<std::size_t>(i)];
    out.push_back(negative ? -v : v);
  }
  return out;
}

std::vector<Index> Slice::index_of(Index flat) const {
  std::vector<Index> index(array->shape.size());
  for (std::size_t a = index.size(); a-- > 0;) {
    const Index size = array->shape[a] == 0 ? 1 : array->shape[a];
    index[a] = flat % size;
    flat /= size;
  }
  return index;
}

Slice slice(const Case& c, std::string_view text) {
  Slice s;
  s.text = std::string(text);
  text = trimmed(text);
  if (!text.empty() && text.front() == '-') {
    s.negative = true;
    text = trimmed(text.substr(1));
  }
  const std::size_t open = text.find('[');
  s.name = std::string(trimmed(text.substr(0, open)));
  s.array = &c.array(s.name);
  s.shape = s.array->shape;
  s.stride.assign(s.shape.size(), 1);
  for (std::size_t a = s.shape.size(); a-- > 1;) s.stride[a - 1] = s.stride[a] * s.shape[a];
  if (open == std::string_view::npos) return s;
  if (text.back() != ']') refuse("case", "an index of an array must end with ]", s.text);
  const auto items = split(text.substr(open + 1, text.size() - open - 2), ',');
  if (items.size() > s.shape.size())
    refuse("case", "an array has fewer axes than its index", s.text);
  for (std::size_t a = 0; a < items.size(); ++a) take(s, a, items[a]);
  drop_taken_axes(s);
  return s;
}

}  // namespace posenc::conformance
