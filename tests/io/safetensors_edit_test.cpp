// SPDX-License-Identifier: Apache-2.0
// One tensor replaced by another; tests/cli/extend_test.py has files that are broken.
#include "posenc/io/safetensors_edit.h"

#include <gtest/gtest.h>

#include "posenc/core/error.h"
#include "posenc/io/array.h"
#include "posenc/io/gguf.h"
#include "support/temporary_directory.h"

namespace posenc {
namespace {

Array numbers(std::vector<Index> shape, double first) {
  Array a = make_array(DType::f64, std::move(shape));
  auto* v = reinterpret_cast<double*>(a.bytes.data());
  for (Index i = 0; i < a.count(); ++i) v[i] = first + static_cast<double>(i);
  return a;
}

TEST(SafetensorsEdit, TheFileItself) {
  const test::TemporaryDirectory dir;
  write_safetensors(dir / "f.safetensors", {{"a", numbers({3}, 1)}, {"b", numbers({2}, 9)}});
  const Array wanted = numbers({40, 2}, -5);
  {
    const MappedFile file(dir / "f.safetensors");
    replace_tensor(dir / "f.safetensors", index_safetensors(file.bytes(), "f"), "a", {40, 2},
                   wanted.bytes);
  }
  const Arrays got = read_safetensors(dir / "f.safetensors");
  EXPECT_EQ(got.at("a").bytes, wanted.bytes);
  EXPECT_EQ(got.at("b").bytes, numbers({2}, 9).bytes);
}

TEST(SafetensorsEdit, EveryTensorInTurnLargerAndSmaller) {
  const Arrays all{{"a", numbers({2, 3}, 0)},
                   {"b", numbers({0, 4}, 0)},
                   {"c", numbers({5}, 100)},
                   {"d", numbers({1}, 7)}};
  const std::vector<std::byte> bytes = safetensors_bytes(all, {{"key", "value"}});
  const SafetensorsIndex index = index_safetensors(bytes, "file");
  ASSERT_EQ(index.tensors.size(), 4u);
  const test::TemporaryDirectory dir;
  for (const auto& [name, old] : all)
    for (const Index rows : {0, 1, 9}) {
      const Array wanted = numbers({rows, 2}, -50);
      std::int64_t last = 0, total = 0;
      replace_tensor(dir / "out.safetensors", index, name, {rows, 2}, wanted.bytes,
                     [&](std::int64_t done, std::int64_t of) { last = done, total = of; });
      EXPECT_EQ(last, total);
      const Arrays got = read_safetensors(dir / "out.safetensors");
      ASSERT_EQ(got.size(), all.size());
      for (const auto& [other, array] : all) {
        EXPECT_EQ(got.at(other).bytes, other == name ? wanted.bytes : array.bytes) << name << other;
        EXPECT_EQ(got.at(other).shape, other == name ? wanted.shape : array.shape);
      }
      const std::vector<std::byte> raw = read_file(dir / "out.safetensors", 1 << 20);
      EXPECT_EQ(index_safetensors(raw, "out").header.at("__metadata__").at("key").as_string(),
                "value");
    }
  EXPECT_THROW(replace_tensor(dir / "x", index, "e", {1}, {}), std::invalid_argument);
  EXPECT_FALSE(std::filesystem::exists(dir / "x"));
}

TEST(SafetensorsEdit, CutOffAnywhere) {
  const Arrays all{{"a", numbers({2, 3}, 0)}, {"c", numbers({5}, 100)}};
  const std::vector<std::byte> bytes = safetensors_bytes(all);
  for (std::size_t n = 0; n < bytes.size(); ++n)
    EXPECT_THROW(index_safetensors(std::span(bytes).first(n), "file"), FormatError) << n;
}

}  // namespace
}  // namespace posenc
