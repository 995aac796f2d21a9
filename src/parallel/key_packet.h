// SPDX-License-Identifier: Apache-2.0
// What is by key and goes round: sent from where it is, received in one piece of memory.
#pragma once
#include <span>
#include <vector>

#include "core/huge_pages.h"
#include "parallel/keyed_call.h"

namespace posenc::inline v0::detail {

using PacketBytes = std::vector<std::byte, UnwrittenPages<std::byte>>;

using ConstBytes = std::span<const std::byte>;

// Bytes of a packet of all fields; the same for all calls of the same shapes.
std::size_t packet_bytes(KeyedCall&);
// Each field of the call as dense bytes: its own memory, or a copy in `copies`.
std::vector<ConstBytes> packet_fields(KeyedCall& from, PacketBytes& copies);
// Their places in a packet.
std::vector<std::span<std::byte>> packet_places(std::span<const ConstBytes> fields,
                                                std::span<std::byte> packet);
// Points what is by key to the packet.
void read_packet(ConstBytes from, KeyedCall& to);

// Gradients of what is by key, in the order of each_key_heads; those that are not wanted have no memory.
class KeyGradients {
 public:
  // wanted: a flag for each of them. `type`: f64 or f32.
  KeyGradients(KeyedCall&, const std::vector<bool>& wanted, DType type);
  void clear() noexcept;
  // Adds the same of another rank.
  void add(std::span<const std::byte>) noexcept;
  std::span<std::byte> bytes() noexcept { return memory_; }
  const Heads& operator[](std::size_t n) const noexcept { return views_[n]; }

 private:
  PacketBytes memory_;
  std::vector<Heads> views_;
  DType type_;
};

}  // namespace posenc::v0::detail
