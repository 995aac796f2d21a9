// SPDX-License-Identifier: Apache-2.0
// Tables in every layout, in memory and in files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "rotary/table_support.h"
#include "support/temporary_directory.h"

namespace posenc {
namespace {

using namespace test;

constexpr TableLayout kLayouts[] = {TableLayout::half, TableLayout::duplicated,
                                    TableLayout::repeated, TableLayout::pairs};

// Every layout in memory turns the same bits and holds what the half one holds, where its layout
// says; so does one that grew or was replaced.
TEST(RotaryTableLayout, EveryLayoutTurnsTheSame) {
  const std::vector<Index> one{0, 1, 5, 999, 3, 3, 512, 77}, two{0, 7, 400, 12, 9, 9, 3, 999};
  for (const RotarySpec& spec :
       {plain(), plain(16, 5e5, Pairing::interleaved), scaled(2, 1.19), two_axes(), two_blocks()})
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      Positions p = positions(one);
      if (spec.axes() == 2) {
        p = positions(two);
        p.axes = 2, p.count = 4, p.axis_stride = 4;
      }
      const RotaryPlan plan(spec, DType::f32);
      const RotaryTable half(spec, 1000, dtype);
      Tensors want = tensors(p.count);
      apply(plan, want.qk, want.qk, half, p);
      for (const TableLayout layout : kLayouts) {
        RotaryTable grown(spec, 40, dtype, layout), built(spec, 1000, dtype, layout);
        grown.grow(1000);
        built.replace(spec);
        EXPECT_EQ(grown.snapshot().layout, layout);
        for (const RotaryTable* table : {&grown, &built}) {
          Tensors got = tensors(p.count);
          apply(plan, got.qk, got.qk, *table, p);
          EXPECT_EQ(got.q, want.q) << enum_text(layout) << " " << dtype_name(dtype);
          EXPECT_EQ(got.k, want.k) << enum_text(layout) << " " << dtype_name(dtype);
        }
      }
    }
}

// Tables with rows a head: all heads of a block are laid out together.
TEST(RotaryTableLayout, HeadsOfABlockSideBySide) {
  RotarySpec spec = plain(8);
  Spectrum& s = spec.blocks[0].spectrum;
  s.heads = 2;
  s.frequency = {1, 0.5, 0.25, 0.125, 0.9, 0.7, 0.3, 0.1};
  s.geometric.reset();
  const auto half = values(RotaryTable(spec, 3).snapshot());
  const auto pairs = values(RotaryTable(spec, 3, DType::f32, TableLayout::pairs).snapshot());
  const auto twice = values(RotaryTable(spec, 3, DType::f32, TableLayout::duplicated).snapshot());
  const auto repeated = values(RotaryTable(spec, 3, DType::f32, TableLayout::repeated).snapshot());
  ASSERT_EQ(twice.size(), 3u * 32u);
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t m = 0; m < 8; ++m) {
      const double c = half[16 * r + m], sine = half[16 * r + 8 + m];
      EXPECT_EQ(pairs[16 * r + 2 * m], c);
      EXPECT_EQ(pairs[16 * r + 2 * m + 1], sine);
      for (const std::size_t copy : {std::size_t{0}, std::size_t{1}}) {
        EXPECT_EQ(twice[32 * r + 8 * copy + m], c);
        EXPECT_EQ(twice[32 * r + 16 + 8 * copy + m], sine);
        EXPECT_EQ(repeated[32 * r + 2 * m + copy], c);
        EXPECT_EQ(repeated[32 * r + 16 + 2 * m + copy], sine);
      }
    }
}

TEST(RotaryTableFile, EveryLayoutIsMappedBack) {
  const test::TemporaryDirectory directory;
  const RotarySpec spec = scaled(2, 1.1);
  for (const TableLayout has : kLayouts)
    for (const TableLayout layout : kLayouts)
      for (const char* name : {"t.npy", "t.safetensors"}) {
        SCOPED_TRACE(std::string(enum_text(has)) + " as " + std::string(enum_text(layout)));
        const auto path = directory.path() / name;
        const bool npy = path.extension() == ".npy";
        RotaryTable(spec, 70, DType::f32, has).save(path, layout);
        const RotaryTable want(spec, 70, DType::f32, layout);
        const auto back = RotaryTable::map(path, spec, BeyondTable::refuse,
                                           npy ? std::optional(layout) : std::nullopt);
        EXPECT_EQ(back.snapshot().layout, layout);
        EXPECT_EQ(values(back.snapshot()), values(want.snapshot()));
        const std::vector<Index> p{0, 69};
        EXPECT_LE(worst_difference(spec, back, positions(p)), 2e-6);
        for (const TableLayout other : kLayouts) {
          if (other == layout) continue;
          EXPECT_THROW(RotaryTable::map(path, spec, BeyondTable::refuse, other),
                       std::invalid_argument)
              << enum_text(other);
        }
      }
}

TEST(RotaryTableFile, IsMappedBack) {
  const test::TemporaryDirectory directory;
  const RotarySpec spec = scaled(2, 1.1);
  const RotaryTable t(spec, 700);
  for (const char* name : {"t.npy", "t.safetensors"}) {
    const auto path = directory.path() / name;
    t.save(path);
    RotaryTable back = RotaryTable::map(path, spec);
    EXPECT_EQ(values(back.snapshot()), values(t.snapshot()));
    const std::vector<Index> p{0, 699};
    EXPECT_LE(worst_difference(spec, back, positions(p)), 2e-6);
    EXPECT_THROW(RotaryTable::map(path, plain()), std::invalid_argument) << name;
    EXPECT_THROW(RotaryTable::map(path, plain(32)), std::invalid_argument) << name;
    back.grow(2000);
    expect_rows(back, spec, 7.0e-8);
  }
  RotaryTable(spec, 50, DType::bf16).save(directory.path() / "b.safetensors");
  EXPECT_EQ(RotaryTable::map(directory.path() / "b.safetensors", spec).size(), 50);
  EXPECT_THROW(RotaryTable(spec, 50, DType::bf16).save(directory.path() / "b.npy"),
               std::invalid_argument);
}

TEST(RotaryTableFile, EveryLayout) {
  const test::TemporaryDirectory directory;
  const RotaryTable t(plain(8), 3);
  const auto half = values(t.snapshot());
  const auto file = directory.path() / "x.safetensors";
  const auto saved = [&](TableLayout layout) {
    t.save(file, layout);
    return read_safetensors(file).at("cos_sin").doubles();
  };
  const auto twice = saved(TableLayout::duplicated), repeated = saved(TableLayout::repeated),
             pairs = saved(TableLayout::pairs);
  EXPECT_EQ(saved(TableLayout::half), half);
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t i = 0; i < 4; ++i) {
      const double c = half[8 * r + i], s = half[8 * r + 4 + i];
      EXPECT_EQ(twice[16 * r + i], c);
      EXPECT_EQ(twice[16 * r + 4 + i], c);
      EXPECT_EQ(twice[16 * r + 8 + i], s);
      EXPECT_EQ(twice[16 * r + 12 + i], s);
      EXPECT_EQ(repeated[16 * r + 2 * i + 1], c);
      EXPECT_EQ(repeated[16 * r + 8 + 2 * i], s);
      EXPECT_EQ(pairs[8 * r + 2 * i], c);
      EXPECT_EQ(pairs[8 * r + 2 * i + 1], s);
    }
}

TEST(RotaryTableFile, DamagedFilesAreRefused) {
  const test::TemporaryDirectory directory;
  const RotarySpec spec = plain();
  for (const char* name : {"t.npy", "t.safetensors"}) {
    const auto path = directory.path() / name;
    RotaryTable(spec, 40).save(path);
    std::vector<std::byte> good = read_file(path, 1 << 20);
    const auto refused = [&](std::vector<std::byte> bytes) {
      write_file_atomically(path, bytes);
      EXPECT_ANY_THROW(RotaryTable::map(path, spec)) << name << " of " << bytes.size();
    };
    for (const std::size_t n :
         {std::size_t{0}, std::size_t{7}, std::size_t{9}, std::size_t{60}, good.size() - 1})
      refused({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)});
    auto bad = good;
    bad.push_back(std::byte{0});
    refused(bad);
    bad = good;
    bad[bad.size() - 3] ^= std::byte{0x70};  // a value of the last row
    refused(bad);
    bad = good;
    bad[0] ^= std::byte{0xff};
    refused(bad);
  }
  EXPECT_THROW(RotaryTable::map(directory.path() / "absent.npy", spec), FormatError);
}

// What stands in a header is believed only where the file has it.
TEST(RotaryTableFile, HeadersThatLieAreRefused) {
  const test::TemporaryDirectory directory;
  const RotarySpec spec = plain();
  const auto path = directory.path() / "t.npy";
  const auto said = [&](const std::string& dictionary) {
    std::string text = std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(118) + '\0';
    text += dictionary + std::string(117 - dictionary.size(), ' ') + '\n';
    write_file_atomically(path, std::as_bytes(std::span(text)));
    try {
      (void)RotaryTable::map(path, spec);
    } catch (const FormatError& e) {
      return std::string(e.what());
    }
    return std::string("mapped");
  };
  const std::string rows = "{'descr': '<f4', 'fortran_order': False, 'shape': ";
  for (const char* shape : {"(4611686018427387904, 4)", "(4, 4611686018427387904)",
                            "(2305843009213693952, 2305843009213693952)", "(1, 1)"})
    EXPECT_THAT(said(rows + shape + ", }"), testing::HasSubstr("as long as the shape needs"));
  EXPECT_THAT(said(rows + "(3,), }"), testing::HasSubstr("two axes"));
  EXPECT_THAT(said("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 16), }"),
              testing::HasSubstr("<f4 or <f2"));
  EXPECT_THAT(said("{'descr': '<f4', 'fortran_order': True, 'shape': (0, 16), }"),
              testing::HasSubstr("fortran_order"));
}

}  // namespace
}  // namespace posenc
