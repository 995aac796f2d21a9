// SPDX-License-Identifier: Apache-2.0
// ln(1 + e^-|x|) by tables of sixteen doubles, which AVX-512 has two registers for: shorter
// polynomials and no division. Within 1e-11 of itself.
#if defined(POSENC_KERNELS_SOFTPLUS_TABLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_SOFTPLUS_TABLE_INL_H_
#undef POSENC_KERNELS_SOFTPLUS_TABLE_INL_H_
#else
#define POSENC_KERNELS_SOFTPLUS_TABLE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#undef POSENC_SOFTPLUS_TABLE
#define POSENC_SOFTPLUS_TABLE (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
#if POSENC_SOFTPLUS_TABLE
HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// 2^(-j/16), to whose bits j 2^48 was added; 1 / (1 + k/16); and minus the logarithm of that.
alignas(64) constexpr double kPowers[] = {
    0x1.0000000000000p+0, 0x1.fa4afa2a490dap-1, 0x1.f5818dcfba487p-1, 0x1.f199bdd85529cp-1,
    0x1.ee89f995ad3adp-1, 0x1.ec49182a3f090p-1, 0x1.eace5422aa0dbp-1, 0x1.ea11473eb0187p-1,
    0x1.ea09e667f3bcdp-1, 0x1.eab07dd485429p-1, 0x1.ebfdad5362a27p-1, 0x1.edea64c123422p-1,
    0x1.f06fe0a31b715p-1, 0x1.f387a6e756238p-1, 0x1.f72b83c7d517bp-1, 0x1.fb5586cf9890fp-1};
alignas(64) constexpr double kInverses[] = {
    0x1.0000000000000p+0, 0x1.e1e1e1e1e1e1ep-1, 0x1.c71c71c71c71cp-1, 0x1.af286bca1af28p-1,
    0x1.999999999999ap-1, 0x1.8618618618618p-1, 0x1.745d1745d1746p-1, 0x1.642c8590b2164p-1,
    0x1.5555555555555p-1, 0x1.47ae147ae147bp-1, 0x1.3b13b13b13b14p-1, 0x1.2f684bda12f68p-1,
    0x1.2492492492492p-1, 0x1.1a7b9611a7b96p-1, 0x1.1111111111111p-1, 0x1.0842108421084p-1};
alignas(64) constexpr double kLogs[] = {
    0x0.0000000000000p+0, 0x1.f0a30c01162a8p-5, 0x1.e27076e2af2eap-4, 0x1.5ff3070a793d6p-3,
    0x1.c8ff7c79a9a20p-3, 0x1.1675cababa60fp-2, 0x1.4618bc21c5ec2p-2, 0x1.739d7f6bbd007p-2,
    0x1.9f323ecbf984dp-2, 0x1.c8ff7c79a9a21p-2, 0x1.f128f5faf06ecp-2, 0x1.0be72e4252a83p-1,
    0x1.1e85f5e7040d1p-1, 0x1.307d7334f10bep-1, 0x1.41d8fe84672afp-1, 0x1.52a2d265bc5abp-1};
// e^r for |r| <= ln(2) / 32 within 2.5e-12, never above 1 for r <= 0; ln(1 + r) / r for r in [0,
// 1/16] within 3.6e-12. From the highest coefficient down.
constexpr double kTableExp[] = {0x1.55539f67c81b3p-5, 0x1.5557e54ba42ffp-3, 0x1.00000005c0052p-1,
                                0x1.fffffffb13750p-1, 0x1.ffffffffffe6cp-1};
constexpr double kTableLog[] = {-0x1.23b47ec6e2260p-3, 0x1.963a40ae14936p-3,  -0x1.ffe47d91d8372p-3,
                                0x1.5555224382381p-2,  -0x1.ffffffba68934p-2, 0x1.fffffffff84cfp-1};

struct SoftplusTable {
  using D = hn::ScalableTag<double>;
  using DU = hn::RebindToUnsigned<D>;
  using V = hn::Vec<D>;

  // Looked up by the lower four bits.
  struct Sixteen {
    V low, high;
    HWY_INLINE explicit Sixteen(const double* p)
        : low(hn::Load(D(), p)), high(hn::Load(D(), p + 8)) {}
    HWY_INLINE V at(hn::Vec<DU> i) const {
      return V{_mm512_permutex2var_pd(low.raw, i.raw, high.raw)};
    }
  };
  Sixteen powers, inverses, logs;

  HWY_INLINE SoftplusTable() : powers(kPowers), inverses(kInverses), logs(kLogs) {}

  static HWY_INLINE V set(double x) { return hn::Set(D(), x); }
  // |x|, at most 708.
  static HWY_INLINE V short_of_overflow(V x) {
    return V{_mm512_range_pd(x.raw, set(708).raw, 0b1010)};
  }
  // max(x, 0) that leaves NaN.
  static HWY_INLINE V positive(V x) { return V{_mm512_max_pd(set(0).raw, x.raw)}; }
  // y 2^(-n/16): n, in the lower bits, is subtracted from the exponent, and j of it is there already.
  HWY_INLINE V scaled(V y, V n) const {
    const auto bits = hn::BitCast(DU(), n);
    const auto power = hn::BitCast(DU(), powers.at(bits));
    return hn::Mul(y, hn::BitCast(D(), hn::Sub(power, hn::ShiftLeft<48>(bits))));
  }
  // 1 + u, u in [0, 1), is c (1 + r), where c has four bits behind the point.
  HWY_INLINE void reduce(V u, V& r, V& log_c) const {
    const auto whole = hn::BitCast(DU(), hn::Add(u, set(1)));
    const auto k = hn::ShiftRight<48>(whole);
    const auto c = hn::BitCast(D(), hn::And(whole, hn::Set(DU(), ~std::uint64_t{0} << 48)));
    r = hn::Mul(hn::Sub(u, hn::Sub(c, set(1))), inverses.at(k));
    log_c = logs.at(k);
  }
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
#endif
