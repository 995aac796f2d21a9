// SPDX-License-Identifier: Apache-2.0
// How the targets that read JSON are mutated: one value of the document is changed, removed, repeated or exchanged
// for another, so that an input stays JSON and reaches what is behind the parser. One in eight is changed as bytes.
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "posenc/core/error.h"
#include "posenc/io/json.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t*, std::size_t, std::size_t);

namespace {

using posenc::Json;
using Random = std::minstd_rand;

constexpr std::int64_t kNumbers[] = {-9223372036854775807 - 1,
                                     -65536,
                                     -2,
                                     -1,
                                     0,
                                     1,
                                     2,
                                     3,
                                     4,
                                     5,
                                     7,
                                     8,
                                     16,
                                     63,
                                     64,
                                     65,
                                     4096,
                                     1LL << 20,
                                     1LL << 31,
                                     1LL << 62,
                                     9223372036854775807};

std::size_t below(Random& random, std::size_t n) {
  return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
}

void collect(Json& j, std::vector<Json*>& all) {
  all.push_back(&j);
  if (auto* list = std::get_if<Json::Array>(&j.value))
    for (Json& e : *list) collect(e, all);
  if (auto* object = std::get_if<Json::Object>(&j.value))
    for (auto& [key, e] : *object) collect(e, all);
}

void change_container(Json& j, Random& random) {
  const std::size_t how = below(random, 4);
  const auto change = [&](auto& list) {
    if (list.empty()) return;
    const auto at = list.begin() + static_cast<std::ptrdiff_t>(below(random, list.size()));
    if (how == 0) list.erase(at);
    if (how == 1) list.push_back(*at);
    if (how == 2) std::swap(*at, list.front());
    if (how == 3) list.clear();
  };
  if (auto* list = std::get_if<Json::Array>(&j.value)) change(*list);
  if (auto* object = std::get_if<Json::Object>(&j.value)) change(*object);
}

void change_text(std::string& text, Random& random) {
  std::vector<std::uint8_t> bytes(text.size() + 16);
  std::memcpy(bytes.data(), text.data(), text.size());
  std::string changed(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(LLVMFuzzerMutate(
                                                         bytes.data(), text.size(), bytes.size())));
  if (below(random, 8) == 0) changed.clear();
  text = changed;
}

void change(std::vector<Json*>& all, Random& random) {
  Json& j = *all[below(random, all.size())];
  const std::size_t how = below(random, 6);
  if (how == 0) {
    j = Json(*all[below(random, all.size())]);
  } else if (how == 1) {
    j = Json(kNumbers[below(random, std::size(kNumbers))]);
  } else if (auto* text = std::get_if<std::string>(&j.value)) {
    change_text(*text, random);
  } else if (j.is_integer()) {
    const std::int64_t n = j.as_integer(), step = how % 2 == 0 ? 1 : -1;
    j = Json(n > -1000000 && n < 1000000 ? n + step : n / 2);
  } else if (j.is_number()) {
    j = Json(how == 2 ? -j.as_number() : how == 3 ? 0.0 : j.as_number() * 3);
  } else {
    change_container(j, random);
  }
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  Random random(seed);
  if (below(random, 8) == 0) return LLVMFuzzerMutate(data, size, most);
  try {
    Json document = posenc::parse_json({reinterpret_cast<const char*>(data), size}, "input");
    for (std::size_t n = 1 + below(random, 3); n > 0; --n) {
      std::vector<Json*> all;
      collect(document, all);
      change(all, random);
    }
    const std::string text = document.dump();
    if (text.size() > most) return LLVMFuzzerMutate(data, size, most);
    std::memcpy(data, text.data(), text.size());
    return text.size();
  } catch (const std::exception&) {  // no JSON, or a text that is no UTF-8 any more
    return LLVMFuzzerMutate(data, size, most);
  }
}
