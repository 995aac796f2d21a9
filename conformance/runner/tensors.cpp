// SPDX-License-Identifier: Apache-2.0
#include "conformance/runner/tensors.h"

#include <cstring>

#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

int width_rank(DType t) {
  if (t == DType::f64) return 2;
  return t == DType::f32 ? 1 : 0;
}

}  // namespace

DType wider(DType a, DType b) {
  if (a == b) return a;
  if (width_rank(a) == 0 && width_rank(b) == 0) return DType::f32;  // f16 and bf16
  return width_rank(a) > width_rank(b) ? a : b;
}

Array dense(const Slice& s, DType dtype) {
  if (!s.is_float()) refuse("case", "the array must hold floating-point numbers", s.text);
  Array out = make_array(dtype, s.shape);
  if (s.array->dtype == dtype && !s.negative) {
    const auto size = static_cast<std::size_t>(size_of(dtype));
    std::size_t to = 0;
    for (const Index from : s.offsets())
      std::memcpy(out.bytes.data() + size * to++,
                  s.array->bytes.data() + size * static_cast<std::size_t>(from), size);
    return out;
  }
  const std::vector<double> values = s.values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::f64) {
      std::memcpy(out.bytes.data() + 8 * i, &values[i], 8);
    } else if (dtype == DType::f32) {
      const auto narrow = static_cast<float>(values[i]);
      std::memcpy(out.bytes.data() + 4 * i, &narrow, 4);
    } else {
      refuse("case", "the array would have to be narrowed", s.text);
    }
  }
  return out;
}

Heads HeadsArray::view() {
  Heads h;
  h.data = data.bytes.data();
  h.batch = axes['b'].size;
  h.tokens = axes['t'].size;
  h.heads = axes['h'].size;
  h.dim = axes['d'].size;
  h.batch_stride = axes['b'].stride;
  h.token_stride = axes['t'].stride;
  h.head_stride = axes['h'].stride;
  h.dim_stride = axes['d'].stride;
  h.dtype = data.dtype;
  return h;
}

std::string letters_of(const Check& check, const Slice& s, std::string_view fallback) {
  for (const std::string& name : {s.text, s.name})
    if (const Json* given = check.member("axes", name)) return given->as_string();
  if (!fallback.empty()) return std::string(fallback);
  if (s.shape.size() == 3) return "thd";
  refuse("case", "the order of the axes must be given", s.text);
}

HeadsArray heads_of(const Slice& s, DType dtype, std::string_view letters, Index head_dim) {
  return {dense(s, dtype), Axes(s.shape, letters, {{'d', head_dim}})};
}

HeadsArray behind_each_other(const std::vector<HeadsArray>& parts, Index tokens, const char* name) {
  if (parts.empty()) refuse("case", "a list of arrays must not be empty", name);
  const Axes& first = parts.front().axes;
  for (const HeadsArray& part : parts)
    for (const char letter : {'b', 'h', 'd'})
      if (part.axes[letter].size != first[letter].size)
        refuse("case", std::string("arrays of a list must have one size of the axis ") + letter,
               part.axes[letter].size);
  const Index row = first['h'].size * first['d'].size;
  Array whole = make_array(DType::f64, {first['b'].size, tokens, first['h'].size, first['d'].size});
  Index done = 0;
  for (const HeadsArray& part : parts) {
    const std::vector<double> values = part.data.doubles();
    const Index n = part.axes['t'].size;
    Index at = 0;
    for (const Index from : part.axes.walk("bthd")) {  // empty where n or row is 0
      const Index b = at / (n * row), rest = at % (n * row);
      std::memcpy(whole.bytes.data() + 8 * ((b * tokens + done) * row + rest),
                  &values[static_cast<std::size_t>(from)], 8);
      ++at;
    }
    done += n;
  }
  const std::vector<Index> shape = whole.shape;
  return {std::move(whole), Axes(shape, "bthd", {})};
}

void expect_heads(Check& check, std::string_view ours, HeadsArray& got, std::string_view letters,
                  Index head_dim) {
  const std::string* name = check.array_name("out", ours);
  if (name == nullptr) return;
  const Slice want = slice(check.in_case, *name);
  const Axes axes(want.shape, letters_of(check, want, letters), {{'d', head_dim}});
  const std::vector<double> values = got.data.doubles();
  const std::vector<Index> from = got.axes.walk("bthd"), to = axes.walk("bthd");
  if (from.size() != to.size())
    refuse("case", "the result has another number of elements than " + want.text,
           static_cast<Index>(from.size()));
  for (const char letter : {'b', 't', 'h', 'd'})
    if (got.axes[letter].size != axes[letter].size)
      refuse("case", "the result has another shape than " + want.text, got.axes[letter].size);
  std::vector<double> ordered(from.size());
  for (std::size_t i = 0; i < from.size(); ++i)
    ordered[static_cast<std::size_t>(to[i])] = values[static_cast<std::size_t>(from[i])];
  check.expect(want, ordered);
}

}  // namespace posenc::conformance
