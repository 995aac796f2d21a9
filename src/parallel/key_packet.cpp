// SPDX-License-Identifier: Apache-2.0
#include "parallel/key_packet.h"

#include <algorithm>
#include <cstring>

namespace posenc::inline v0::detail {
namespace {

constexpr std::size_t kPacketLine = 64;  // each array begins on a cache line

std::size_t in_lines(std::size_t bytes) noexcept {
  return (bytes + kPacketLine - 1) / kPacketLine * kPacketLine;
}

// An array of any strides, of up to 4 axes.
struct PacketView {
  const std::byte* data;
  std::array<Index, 4> shape{1, 1, 1, 1}, stride{};
  std::size_t element;

  std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]) * element;
  }
  bool is_dense() const noexcept {
    Index next = 1;
    for (std::size_t n = shape.size(); n-- > 0; next *= shape[n])
      if (shape[n] > 1 && stride[n] != next) return false;
    return true;
  }
  void copy_to(std::byte* to) const noexcept {
    const auto size = static_cast<Index>(element);
    const std::size_t row = static_cast<std::size_t>(shape[3]) * element;
    for (Index a = 0; a < shape[0]; ++a)
      for (Index b = 0; b < shape[1]; ++b)
        for (Index c = 0; c < shape[2]; ++c) {
          const std::byte* from = data + (a * stride[0] + b * stride[1] + c * stride[2]) * size;
          if (stride[3] == 1 || shape[3] < 2) {
            if (row > 0) std::memcpy(to, from, row);
            to += row;
            continue;
          }
          for (Index d = 0; d < shape[3]; ++d, to += element)
            std::memcpy(to, from + d * stride[3] * size, element);
        }
  }
};

PacketView packet_view(const ConstHeads& h) {
  return {static_cast<const std::byte*>(h.data),
          {h.batch, h.tokens, h.heads, h.dim},
          {h.batch_stride, h.token_stride, h.head_stride, h.dim_stride},
          static_cast<std::size_t>(size_of(h.dtype))};
}
PacketView packet_view(const ConstTensorView& v) {
  PacketView p{static_cast<const std::byte*>(v.data),
               {1, 1, 1, 1},
               {},
               static_cast<std::size_t>(size_of(v.dtype))};
  const auto first = 4 - static_cast<std::size_t>(v.rank);
  std::copy_n(v.shape.begin(), v.rank, p.shape.begin() + static_cast<std::ptrdiff_t>(first));
  std::copy_n(v.stride.begin(), v.rank, p.stride.begin() + static_cast<std::ptrdiff_t>(first));
  return p;
}
PacketView packet_view(const Positions& p) {
  return {static_cast<const std::byte*>(p.data),
          {1, p.axes, p.batch, p.count},
          {0, p.axis_stride, p.batch == 1 ? 0 : p.batch_stride, p.token_stride},
          static_cast<std::size_t>(size_of(p.type))};
}

void set_dense(ConstHeads& h, const std::byte* data) {
  h.data = data;
  h.dim_stride = 1, h.head_stride = h.dim;
  h.token_stride = h.heads * h.dim, h.batch_stride = h.tokens * h.token_stride;
}
void set_dense(ConstTensorView& v, const std::byte* data) {
  v.data = data;
  Index stride = 1;
  for (auto n = static_cast<std::size_t>(v.rank); n-- > 0; stride *= v.shape[n])
    v.stride[n] = stride;
}
void set_dense(Positions& p, const std::byte* data) {
  p.data = data;
  p.token_stride = 1, p.batch_stride = p.count, p.axis_stride = p.batch * p.count;
}

// fn(field) for everything that is by key and given.
template <class F>
void each_field(KeyedCall& c, const F& fn) {
  std::vector<ConstHeads*> by_key;  // all are found before one is changed
  c.each_key_heads([&](ConstHeads& h) { by_key.push_back(&h); });
  for (ConstHeads* h : by_key)
    if (h->data != nullptr) fn(*h);
  c.each_key_array([&](ConstTensorView& v, int) {
    if (!v.empty()) fn(v);
  });
  if (c.args.key_positions.data != nullptr) fn(c.args.key_positions);
}

}  // namespace

std::size_t packet_bytes(KeyedCall& c) {
  std::size_t bytes = 0;
  each_field(c, [&](auto& field) { bytes += in_lines(packet_view(field).bytes()); });
  return bytes;
}

std::vector<ConstBytes> packet_fields(KeyedCall& from, PacketBytes& copies) {
  std::vector<PacketView> views;
  std::size_t copied = 0;
  each_field(from, [&](auto& field) {
    views.push_back(packet_view(field));
    if (!views.back().is_dense()) copied += views.back().bytes();
  });
  copies.resize(copied);
  std::vector<ConstBytes> fields;
  std::byte* next = copies.data();
  for (const PacketView& v : views) {
    fields.emplace_back(v.is_dense() ? v.data : next, v.bytes());
    if (v.is_dense()) continue;
    v.copy_to(next);
    next += v.bytes();
  }
  return fields;
}

std::vector<std::span<std::byte>> packet_places(std::span<const ConstBytes> fields,
                                                std::span<std::byte> packet) {
  std::vector<std::span<std::byte>> places;
  std::size_t at = 0;
  for (const ConstBytes f : fields) {
    places.push_back(packet.subspan(at, f.size()));
    at += in_lines(f.size());
  }
  return places;
}

void read_packet(ConstBytes from, KeyedCall& to) {
  const std::byte* at = from.data();
  each_field(to, [&](auto& field) {
    const std::size_t bytes = in_lines(packet_view(field).bytes());
    set_dense(field, at);
    at += bytes;
  });
}

KeyGradients::KeyGradients(KeyedCall& c, const std::vector<bool>& wanted, DType type)
    : type_(type) {
  std::size_t n = 0, bytes = 0;
  std::vector<std::size_t> at;
  c.each_key_heads([&](ConstHeads& h) {
    Heads& to = views_.emplace_back();
    at.push_back(bytes);
    if (!wanted[n++] || h.data == nullptr) return;
    ConstHeads dense = h;
    set_dense(dense, nullptr);
    to = {nullptr,
          h.batch,
          h.tokens,
          h.heads,
          h.dim,
          dense.batch_stride,
          dense.token_stride,
          dense.head_stride,
          dense.dim_stride,
          type};
    bytes +=
        in_lines(static_cast<std::size_t>(h.batch * h.tokens * h.heads * h.dim * size_of(type)));
  });
  memory_.resize(bytes);
  for (std::size_t i = 0; i < views_.size(); ++i)
    if (views_[i].dim > 0) views_[i].data = memory_.data() + at[i];
}

void KeyGradients::clear() noexcept {
  std::fill(memory_.begin(), memory_.end(), std::byte{0});
}

namespace {

template <class T>
void add_numbers(std::span<std::byte> to, std::span<const std::byte> from) noexcept {
  T* const y = reinterpret_cast<T*>(to.data());
  const T* const x = reinterpret_cast<const T*>(from.data());
  for (std::size_t n = 0; n < to.size() / sizeof(T); ++n) y[n] += x[n];
}

}  // namespace

void KeyGradients::add(std::span<const std::byte> from) noexcept {
  if (type_ == DType::f64)
    add_numbers<double>(memory_, from);
  else
    add_numbers<float>(memory_, from);
}

}  // namespace posenc::v0::detail
