// SPDX-License-Identifier: Apache-2.0
// Tensors: keys, values, order [tokens], anchor (where keys were rotated) and shift [axes, tokens], array.NAME. Texts:
// format, sizes and the rotation as JSON, and a checksum of all of it.
#include "posenc/cache/snapshot.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "cache/cache_state.h"
#include "cache/rotary_json.h"
#include "core/extent.h"
#include "core/shape.h"
#include "posenc/core/error.h"
#include "posenc/io/array.h"
#include "posenc/io/safetensors_edit.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

constexpr const char *kFormat = "posenc key cache 1", *kDescription = "cache", *kSum = "checksum";
constexpr const char* kMetadataKey = "__metadata__";

// FNV-1a's step on words of 8 bytes, the last one filled with zeros.
class Checksum {
 public:
  void add(std::span<const std::byte> bytes) noexcept {
    add(bytes.size());
    for (std::size_t at = 0; at < bytes.size(); at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, std::min<std::size_t>(8, bytes.size() - at));
      add(word);
    }
  }
  void add(std::string_view text) noexcept { add(std::as_bytes(std::span(text))); }
  void add(std::uint64_t word) noexcept {
    sum_ = (sum_ ^ word) * 0x100000001b3u;
    sum_ ^= sum_ >> 32;
  }
  std::string text() const {
    std::string s;
    for (int at = 60; at >= 0; at -= 4) s += "0123456789abcdef"[sum_ >> at & 15];
    return s;
  }

 private:
  std::uint64_t sum_ = 0xcbf29ce484222325u;
};

std::string_view file_word(DType t) {
  constexpr std::string_view kWords[] = {"F64", "F32", "F16", "BF16", "I64", "I32", "U8"};
  return kWords[static_cast<std::size_t>(t)];
}

// A tensor that a snapshot of a cache has.
struct Wanted {
  std::string name;
  DType dtype;
  std::vector<Index> shape;
};
std::vector<Wanted> wanted_tensors(const PoolSizes& s, Index tokens) {
  std::vector<Wanted> all{{"anchor", DType::i64, {s.axes, tokens}},
                          {"keys",
                           stored_dtype(s.key_type),
                           {tokens, s.heads, stored_channels(s.key_type, s.head_dim)}},
                          {"order", DType::i64, {tokens}},
                          {"shift", DType::i64, {s.axes, tokens}}};
  if (s.value_dim > 0 && !s.values_in_keys)
    all.push_back({"values",
                   stored_dtype(s.value_type),
                   {tokens, s.heads, stored_channels(s.value_type, s.value_dim)}});
  for (const TokenArray& a : s.arrays) {
    all.push_back({"array." + a.name, a.dtype, {tokens}});
    all.back().shape.insert(all.back().shape.end(), a.shape.begin(), a.shape.end());
  }
  std::sort(all.begin(), all.end(),
            [](const Wanted& a, const Wanted& b) { return a.name < b.name; });
  return all;
}

std::string checksum(const std::string& description, const std::vector<Wanted>& wanted,
                     const std::vector<std::span<const std::byte>>& data) {
  Checksum sum;
  sum.add(description);
  for (std::size_t n = 0; n < wanted.size(); ++n) sum.add(wanted[n].name), sum.add(data[n]);
  return sum.text();
}

// Each head of n slots and its bytes in a dense array, f(slot bytes, array bytes, count).
template <class F>
void for_each_head_bytes(const Heads& slots, std::byte* dense, const F& f) {
  const Index size = size_of(slots.dtype);
  for (Index t = 0; t < slots.tokens; ++t)
    for (Index h = 0; h < slots.heads; ++h)
      f(static_cast<std::byte*>(slots.data) +
            (t * slots.token_stride + h * slots.head_stride) * size,
        dense + (t * slots.heads + h) * slots.dim * size,
        static_cast<std::size_t>(slots.dim * size));
}

// Copies between n slots of a page and tokens from `token` on of the arrays, in the order of `wanted`.
struct SlotCopy {
  PoolState& pool;
  std::map<std::string, std::byte*> at;
  Index tokens;

  template <class F>
  void run(Index page, Index slot, Index token, Index n, const F& copy) const {
    const auto heads = [&](const char* name, const Heads& slots) {
      for_each_head_bytes(
          slots, at.at(name) + token * slots.heads * slots.dim * size_of(slots.dtype), copy);
    };
    const auto row = [&](std::byte* in_pool, const std::string& name, Index index, Index bytes) {
      copy(in_pool, at.at(name) + index * bytes, static_cast<std::size_t>(n * bytes));
    };
    heads("keys", pool.key_slots(page, slot, n));
    if (pool.stores_values()) heads("values", pool.value_slots(page, slot, n));
    row(reinterpret_cast<std::byte*>(pool.orders(page) + slot), "order", token, 8);
    for (Index axis = 0; axis < pool.sizes.axes; ++axis)
      row(reinterpret_cast<std::byte*>(pool.anchors(page, axis) + slot), "anchor",
          axis * tokens + token, 8);
    for (std::size_t a = 0; a < pool.arrays.size(); ++a)
      row(pool.entry(a, page, slot), "array." + pool.sizes.arrays[a].name, token,
          pool.entry_bytes[a]);
  }
};

Json description_of(const CacheState& s) {
  const PoolSizes& p = s.pool->sizes;
  return Json::object({{"keeping", enum_text(s.keeping)},
                       {"tokens", s.sequence.tokens},
                       {"next_order", s.sequence.next_order},
                       {"moves", s.sequence.moves},
                       {"counted", s.sequence.counted},
                       {"heads", p.heads},
                       {"head_dim", p.head_dim},
                       {"value_dim", p.value_dim},
                       {"values_in_keys", Index{p.values_in_keys ? 1 : 0}},
                       {"key_type", enum_text(p.key_type)},
                       {"value_type", enum_text(p.value_type)},
                       {"axes", p.axes},
                       {"rotary", rotary_json(s.rotation->spec)}});
}

// A file whose header was read, checked against a pool.
class SnapshotReader {
 public:
  SnapshotReader(std::span<const std::byte> bytes, const std::string& file, const PagePool& pool)
      : file_(file), index_(index_safetensors(bytes, file)), sizes_(pool.sizes()) {
    read_description();
    check_pool();
    find_tensors();
    check_tokens();
  }
  RotarySpec rotary() const { return rotary_from_json(member("rotary"), file_, place("rotary")); }
  KeyKeeping keeping() const {
    const std::string& word = text(member("keeping"), "keeping");
    if (word != "anchored" && word != "unrotated")
      fail(place("keeping"), "must be anchored or unrotated");
    return word == "anchored" ? KeyKeeping::anchored : KeyKeeping::unrotated;
  }
  // Tokens into new pages of a cache without tokens.
  void fill(CacheState& s) const {
    const Index size = s.page_size(), axes = s.axes();
    NewPages pages(*s.pool, (tokens_ + size - 1) / size);
    SlotCopy copy{*s.pool, {}, tokens_};
    for (std::size_t n = 0; n < wanted_.size(); ++n)
      copy.at[wanted_[n].name] = const_cast<std::byte*>(data_[n].data());  // read alone
    Sequence q = s.sequence;
    q.tokens = tokens_, q.next_order = integer("next_order"), q.moves = integer("moves"),
    q.counted = integer("counted");
    std::vector<Index> by(static_cast<std::size_t>(axes));
    for (Index token = 0; token < tokens_; ++token) {
      for (Index axis = 0; axis < axes; ++axis)
        by[static_cast<std::size_t>(axis)] = number("shift", axis * tokens_ + token);
      const Index slot = token % size;
      add_use(q, {pages[token / size], Slots::range(slot, slot + 1)}, by.data());
    }
    for (Index token = 0; token < tokens_; token += size)
      copy.run(pages[token / size], 0, token, std::min(size, tokens_ - token),
               [](std::byte* slot, const std::byte* array, std::size_t n) {
                 std::memcpy(slot, array, n);
               });
    s.find_bounds(q);
    pages.keep();
    s.sequence = std::move(q);
    s.retain_parts();
  }

 private:
  const std::string& file_;
  SafetensorsIndex index_;
  const PoolSizes& sizes_;
  Json description_;
  std::string description_text_, sum_;
  Index tokens_ = 0;
  std::vector<Wanted> wanted_;
  std::vector<std::span<const std::byte>> data_;

  [[noreturn]] void fail(const std::string& where, const std::string& problem) const {
    throw FormatError(file_, where, problem);
  }
  static std::string place(const std::string& key) {
    return std::string("#/") + kMetadataKey + "/" + kDescription + "/" + key;
  }
  const Json& member(const char* key) const {
    const Json* m = description_.find(key);
    if (m == nullptr) fail(place(key), "must be there");
    return *m;
  }
  const std::string& text(const Json& j, const char* key) const {
    if (!j.is_string()) fail(place(key), "must be a text");
    return j.as_string();
  }
  Index integer(const char* key) const {
    const Json& m = member(key);
    if (!m.is_integer() || m.as_integer() < 0 || m.as_integer() > Index{1} << 62)
      fail(place(key), "must be an integer from 0 to 2^62");
    return m.as_integer();
  }

  void read_description() {
    const Json* const texts = index_.header.find(kMetadataKey);
    const Json* const format = texts == nullptr ? nullptr : texts->find("format");
    if (format == nullptr || !format->is_string() || format->as_string() != kFormat)
      fail("#", std::string("is not a snapshot of a key cache: the text format must be \"") +
                    kFormat + "\"");
    const auto text_of = [&](const char* key) -> const std::string& {
      const Json* const t = texts->find(key);
      if (t == nullptr || !t->is_string())
        fail(std::string("#/") + kMetadataKey + "/" + key, "must be a text");
      return t->as_string();
    };
    description_text_ = text_of(kDescription), sum_ = text_of(kSum);
    description_ = parse_json(description_text_, file_);
  }

  void check_same(const char* key, Index got, Index want) const {
    if (got != want)
      refuse_field(kCache, key, "of the snapshot must be that of the pool, " + std::to_string(want),
                   got);
  }
  void check_same(const char* key, std::string_view want) const {
    if (const std::string& got = text(member(key), key); got != want)
      refuse_field(kCache, key, "of the snapshot must be that of the pool, " + std::string(want),
                   got);
  }
  void check_pool() const {
    check_same("heads", integer("heads"), sizes_.heads);
    check_same("head_dim", integer("head_dim"), sizes_.head_dim);
    check_same("value_dim", integer("value_dim"), sizes_.value_dim);
    check_same("values_in_keys", integer("values_in_keys"), sizes_.values_in_keys ? 1 : 0);
    check_same("axes", integer("axes"), sizes_.axes);
    check_same("key_type", enum_text(sizes_.key_type));
    if (sizes_.value_dim > 0 && !sizes_.values_in_keys)
      check_same("value_type", enum_text(sizes_.value_type));
  }

  void find_tensors() {
    tokens_ = integer("tokens");
    if (static_cast<std::size_t>(tokens_) > index_.data.size())
      fail(place("tokens"), "must not be more than the bytes of the file");
    wanted_ = wanted_tensors(sizes_, tokens_);
    for (const Wanted& w : wanted_) {
      const SafetensorsEntry* const e = index_.find(w.name);
      if (e == nullptr && w.name.starts_with("array."))
        refuse_field(kCache, "arrays", "of the snapshot must be those of the pool; it lacks",
                     w.name.substr(6));
      if (e == nullptr) fail("#/" + w.name, "must be there");
      Index bytes = size_of(w.dtype);
      for (const Index n : w.shape) bytes = saturated_product({bytes, n});
      if (e->dtype != file_word(w.dtype) || e->shape != w.shape ||
          e->data.size() != static_cast<std::size_t>(bytes))
        fail("#/" + w.name,
             "must be " + sizes_text(w.shape) + " of " + std::string(file_word(w.dtype)));
      data_.push_back(e->data);
    }
    if (index_.tensors.size() != wanted_.size())
      refuse_field(kCache, "arrays", "of the snapshot must be those of the pool; tensors",
                   static_cast<Index>(index_.tensors.size()));
  }

  Index number(const char* name, Index at) const {
    const auto w = std::find_if(wanted_.begin(), wanted_.end(),
                                [&](const Wanted& x) { return x.name == name; });
    Index x = 0;
    std::memcpy(&x, data_[static_cast<std::size_t>(w - wanted_.begin())].data() + 8 * at, 8);
    return x;
  }

  void check_tokens() const {
    const Index next = integer("next_order");
    integer("moves");
    if (integer("counted") > next) fail(place("counted"), "must be at most next_order");
    Index last = -1;
    for (Index token = 0; token < tokens_; ++token) {
      const Index order = number("order", token);
      if (order <= last || order >= next)
        fail("#/order", "must ascend from 0 up to next_order, got " + std::to_string(order));
      last = order;
    }
    for (Index n = 0; n < sizes_.axes * tokens_; ++n) {
      const Index at = number("anchor", n), by = number("shift", n);
      if (at < -kMostPosition || at > kMostPosition)
        fail("#/anchor", "must be at most 2^37 in magnitude, got " + std::to_string(at));
      if (by < -2 * kMostPosition || by > 2 * kMostPosition || at + by < -kMostPosition ||
          at + by > kMostPosition)
        fail("#/shift",
             "must lead to positions of at most 2^37 in magnitude, got " + std::to_string(by));
    }
    if (checksum(description_text_, wanted_, data_) != sum_)
      fail(std::string("#/") + kMetadataKey + "/" + kSum,
           "must be that of the contents: the file was changed");
  }
};

}  // namespace
}  // namespace detail

std::vector<std::byte> key_cache_bytes(const KeyCache& cache) {
  using namespace detail;
  const CacheState& s = StateAccess::of(cache);
  const std::vector<Wanted> wanted = wanted_tensors(s.pool->sizes, s.sequence.tokens);
  Arrays arrays;
  SlotCopy copy{*s.pool, {}, s.sequence.tokens};
  for (const Wanted& w : wanted)
    copy.at[w.name] =
        arrays.emplace(w.name, make_array(w.dtype, w.shape)).first->second.bytes.data();
  Index token = 0;
  for (std::size_t use = 0; use < s.sequence.uses.size(); ++use)
    for_each_run(s.sequence.uses[use].there, [&](Index slot, Index n) {
      copy.run(s.sequence.uses[use].page, slot, token, n,
               [](const std::byte* from, std::byte* array, std::size_t count) {
                 std::memcpy(array, from, count);
               });
      const auto put = [&](const char* array, Index at, Index x) {
        std::memcpy(copy.at[array] + 8 * at, &x, 8);
      };
      for (Index t = 0; t < n; ++t) {
        put("order", token + t, s.order_of(s.sequence.uses[use], slot + t));
        for (Index axis = 0; axis < s.axes(); ++axis)
          put("shift", axis * s.sequence.tokens + token + t, s.shift_of(use)[axis]);
      }
      token += n;
    });
  std::vector<std::span<const std::byte>> data;
  for (const Wanted& w : wanted) data.emplace_back(arrays.at(w.name).bytes);
  const std::string description = description_of(s).dump();
  return safetensors_bytes(arrays, {{"format", kFormat},
                                    {kDescription, description},
                                    {kSum, checksum(description, wanted, data)}});
}

void save_key_cache(const KeyCache& cache, const std::filesystem::path& path) {
  write_file_atomically(path, key_cache_bytes(cache));
}

KeyCache parse_key_cache(std::span<const std::byte> bytes, const std::string& file,
                         const PagePool& pool, const RotarySpec& rotary,
                         const RescaleOptions& options, const Executor& executor) {
  const detail::SnapshotReader reader(bytes, file, pool);
  auto state = std::make_unique<detail::CacheState>(pool, reader.rotary(), reader.keeping());
  reader.fill(*state);
  auto cache = detail::StateAccess::make<KeyCache>(std::move(state));
  cache.rescale(rotary, options, executor);
  return cache;
}

KeyCache load_key_cache(const std::filesystem::path& path, const PagePool& pool,
                        const RotarySpec& rotary, const RescaleOptions& options,
                        const Executor& executor) {
  return parse_key_cache(read_file(path, std::size_t{1} << 62), path.string(), pool, rotary,
                         options, executor);
}

}  // namespace posenc::v0
