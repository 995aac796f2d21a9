// SPDX-License-Identifier: Apache-2.0
// Snapshots of key caches: bytes are rejected and the pool is as before, or the cache survives being written and read
// again.
#include "fuzz/law.h"
#include "posenc/cache/snapshot.h"
#include "posenc/core/error.h"
#include "posenc/rotary/rope.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace posenc;
  // The sizes and the rotation of make_inputs.cpp.
  const PagePool pool(
      {.pages = 4, .heads = 1, .head_dim = 32, .value_dim = 32, .arrays = {{"document"}}});
  const RotarySpec rope = resolve(Rope{.head_dim = 32, .pairing = Pairing::half_split});
  try {
    const KeyCache cache = parse_key_cache(fuzz::bytes(data, size), "input", pool, rope);
    const std::vector<std::byte> written = key_cache_bytes(cache);
    const PagePool other(pool.sizes());
    fuzz::law(key_cache_bytes(parse_key_cache(written, "written", other, rope)) == written,
              "parse(bytes(x)) == x");
  } catch (const FormatError&) {
  } catch (const ArgumentError&) {
  } catch (const OutOfPages&) {
  }
  fuzz::law(pool.free_pages() == 4, "no page is lost");
  return 0;
}
