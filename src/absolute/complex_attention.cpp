// SPDX-License-Identifier: Apache-2.0
// |z| is not bilinear in q and k, so this has its own arithmetic: a row of scores at a time.
#include <cmath>
#include <limits>

#include "core/overlap.h"
#include "core/shape.h"
#include "posenc/absolute/complex_order.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

constexpr const char* kComplexAttention = "complex_attention";

template <class Data>
struct BasicReader {
  const BasicHeads<Data>* h;
  double get(Index b, Index head, Index t, Index c) const {
    const Index at =
        b * h->batch_stride + t * h->token_stride + head * h->head_stride + c * h->dim_stride;
    return h->dtype == DType::f64 ? static_cast<const double*>(h->data)[at]
                                  : static_cast<const float*>(h->data)[at];
  }
  void put(Index b, Index head, Index t, Index c, double x) const requires(!std::is_const_v<Data>) {
    const Index at =
        b * h->batch_stride + t * h->token_stride + head * h->head_stride + c * h->dim_stride;
    if (h->dtype == DType::f64)
      static_cast<double*>(h->data)[at] = x;
    else
      static_cast<float*>(h->data)[at] = static_cast<float>(x);
  }
};
using Reader = BasicReader<const void>;
using Writer = BasicReader<void>;

void check_part(const ConstHeads& h, const ConstHeads& like, Index tokens, Index dim) {
  if (h.dtype != DType::f64 && h.dtype != DType::f32)
    refuse_field(kComplexAttention, "tensors", "must be f64 or f32", dtype_name(h.dtype));
  if (h.data == nullptr && h.batch * h.tokens * h.heads * h.dim != 0)
    refuse(kComplexAttention, "both parts must be given");
  if (h.batch != like.batch || h.heads != like.heads || h.tokens != tokens || h.dim != dim)
    detail::refuse_shape(kComplexAttention,
                         "parts of q, k and v must fit each other: " +
                             detail::sizes_text({like.batch, tokens, like.heads, dim}),
                         detail::shape_text(h));
}

detail::Memory of(const ConstHeads& h) {
  return detail::memory_of(h);
}

// One row of the score and its softmax, at a time.
class Rows {
 public:
  Rows(const ComplexAttention& a, const ConstComplexHeads& q, const ConstComplexHeads& k,
       const ConstComplexHeads& v)
      : a_(a), q_re_{&q.re}, q_im_{&q.im}, k_re_{&k.re}, k_im_{&k.im} {
    check_part(q.im, q.re, q.re.tokens, q.re.dim);
    for (const ConstHeads* h : {&k.re, &k.im}) check_part(*h, q.re, k.re.tokens, q.re.dim);
    for (const ConstHeads* h : {&v.re, &v.im}) check_part(*h, q.re, k.re.tokens, v.re.dim);
    check_part(q.re, q.re, q.re.tokens, q.re.dim);
    if (!std::isfinite(a.scale) || a.scale < 0)
      refuse_field(kComplexAttention, "scale", "must be finite and not negative", a.scale);
    scale_ = a.scale > 0 || q.re.dim == 0 ? a.scale : 1 / std::sqrt(static_cast<double>(q.re.dim));
    const ConstTensorView& m = a.mask;
    if (!m.empty() &&
        (m.dtype != DType::u8 || m.rank != 4 || (m.shape[0] != 1 && m.shape[0] != q.re.batch) ||
         (m.shape[1] != 1 && m.shape[1] != q.re.heads) || m.shape[2] != q.re.tokens ||
         m.shape[3] != k.re.tokens))
      detail::refuse_shape(kComplexAttention, "mask", "must be [b|1, h|1, q, k] of u8", m);
    const auto n = static_cast<std::size_t>(k.re.tokens);
    re.resize(n), im.resize(n), size.resize(n), p.resize(n);
  }

  // re, im, size = |z| and p of query i; p is all 0 where nothing is visible.
  void make(Index b, Index h, Index i) {
    double largest = -std::numeric_limits<double>::infinity();
    for (std::size_t j = 0; j < p.size(); ++j) {
      score(b, h, i, j);
      if (visible(b, h, i, j)) largest = std::max(largest, scale_ * size[j]);
    }
    double sum = 0;
    for (std::size_t j = 0; j < p.size(); ++j) {
      p[j] = visible(b, h, i, j) ? std::exp(scale_ * size[j] - largest) : 0;
      sum += p[j];
    }
    for (double& x : p) x = sum > 0 ? x / sum : 0;
  }
  double scale() const { return scale_; }
  bool hermitian() const { return a_.score == ComplexScore::hermitian; }

  std::vector<double> re, im, size, p;

 private:
  void score(Index b, Index h, Index i, std::size_t j) {
    double x = 0, y = 0;
    const auto key = static_cast<Index>(j);
    for (Index c = 0; c < q_re_.h->dim; ++c) {
      const double qr = q_re_.get(b, h, i, c), qi = q_im_.get(b, h, i, c);
      const double kr = k_re_.get(b, h, key, c);
      const double ki = hermitian() ? -k_im_.get(b, h, key, c) : k_im_.get(b, h, key, c);
      x += qr * kr - qi * ki;
      y += qr * ki + qi * kr;
    }
    re[j] = x, im[j] = y, size[j] = std::hypot(x, y);
  }
  bool visible(Index b, Index h, Index i, std::size_t j) const {
    const ConstTensorView& m = a_.mask;
    if (m.empty()) return true;
    return static_cast<const std::uint8_t*>(
               m.data)[(m.shape[0] == 1 ? 0 : b) * m.stride[0] +
                       (m.shape[1] == 1 ? 0 : h) * m.stride[1] + i * m.stride[2] +
                       static_cast<Index>(j) * m.stride[3]] != 0;
  }

  const ComplexAttention& a_;
  Reader q_re_, q_im_, k_re_, k_im_;
  double scale_ = 0;
};

// Gradients of one head in double; keys and values are rounded once, at the end.
struct HeadGradient {
  Reader q_re, q_im, k_re, k_im, v_re, v_im, up_re, up_im;
  Index dim, wide, keys;
  double sign;
  std::vector<double> k1, k2, v1, v2, q1, q2;

  HeadGradient(const ConstComplexHeads& q, const ConstComplexHeads& k, const ConstComplexHeads& v,
               const ConstComplexHeads& up, bool hermitian)
      : q_re{&q.re},
        q_im{&q.im},
        k_re{&k.re},
        k_im{&k.im},
        v_re{&v.re},
        v_im{&v.im},
        up_re{&up.re},
        up_im{&up.im},
        dim(q.re.dim),
        wide(v.re.dim),
        keys(k.re.tokens),
        sign(hermitian ? -1 : 1) {}

  void clear() {
    for (std::vector<double>* x : {&k1, &k2}) x->assign(static_cast<std::size_t>(keys * dim), 0);
    for (std::vector<double>* x : {&v1, &v2}) x->assign(static_cast<std::size_t>(keys * wide), 0);
  }
  // d p of the row, values on the way; returns sum p d p.
  double pull_values(const Rows& rows, Index b, Index h, Index i, std::vector<double>& d_p) {
    double mean = 0;
    for (Index j = 0; j < keys; ++j) {
      const auto at = static_cast<std::size_t>(j);
      for (Index c = 0; c < wide; ++c) {
        const auto to = static_cast<std::size_t>(j * wide + c);
        const double x = up_re.get(b, h, i, c), y = up_im.get(b, h, i, c);
        d_p[at] += x * v_re.get(b, h, j, c) + y * v_im.get(b, h, j, c);
        v1[to] += rows.p[at] * x;
        v2[to] += rows.p[at] * y;
      }
      mean += rows.p[at] * d_p[at];
    }
    return mean;
  }
  // (x, y) is d z of query i and key j.
  void pull_score(Index b, Index h, Index i, Index j, double x, double y) {
    for (Index c = 0; c < dim; ++c) {
      const auto to = static_cast<std::size_t>(j * dim + c), at = static_cast<std::size_t>(c);
      const double qr = q_re.get(b, h, i, c), qi = q_im.get(b, h, i, c);
      const double kr = k_re.get(b, h, j, c), ki = sign * k_im.get(b, h, j, c);
      q1[at] += x * kr + y * ki;
      q2[at] += y * kr - x * ki;
      k1[to] += x * qr + y * qi;
      k2[to] += sign * (y * qr - x * qi);
    }
  }
  void pull_row(const Rows& rows, Index b, Index h, Index i) {
    std::vector<double> d_p(static_cast<std::size_t>(keys), 0);
    for (std::vector<double>* x : {&q1, &q2}) x->assign(static_cast<std::size_t>(dim), 0);
    const double mean = pull_values(rows, b, h, i, d_p);
    for (Index j = 0; j < keys; ++j) {
      const auto at = static_cast<std::size_t>(j);
      if (rows.size[at] == 0) continue;
      // d |z| = (re d re + im d im) / |z|
      const double s = rows.p[at] * (d_p[at] - mean) * rows.scale() / rows.size[at];
      pull_score(b, h, i, j, s * rows.re[at], s * rows.im[at]);
    }
  }
};

// Rows [token, channel] of one head.
void put_rows(const ComplexHeads& to, Index b, Index h, const std::vector<double>& re,
              const std::vector<double>& im) {
  const Writer x{&to.re}, y{&to.im};
  std::size_t from = 0;
  for (Index t = 0; t < to.re.tokens; ++t)
    for (Index c = 0; c < to.re.dim; ++c, ++from) {
      x.put(b, h, t, c, re[from]);
      y.put(b, h, t, c, im[from]);
    }
}

}  // namespace

void complex_attention(const ComplexAttention& a, const ConstComplexHeads& q,
                       const ConstComplexHeads& k, const ConstComplexHeads& v,
                       const ComplexHeads& out, const TensorView& probabilities) {
  Rows rows(a, q, k, v);
  for (const Heads* h : {&out.re, &out.im}) check_part(*h, q.re, q.re.tokens, v.re.dim);
  const TensorView& w = probabilities;
  if (!w.empty() &&
      (w.dtype != DType::f64 || w.rank != 4 || w.shape[0] != q.re.batch ||
       w.shape[1] != q.re.heads || w.shape[2] != q.re.tokens || w.shape[3] != k.re.tokens))
    detail::refuse_shape(kComplexAttention, "probabilities", "must be [b, h, q, k] of f64", w);
  // A row of q is read before its output is written; all of k and v are read for every row.
  const detail::Operand weights{"probabilities", detail::memory_of(w)},
      mask{"the mask", detail::memory_of(a.mask)}, k_re{"k re", of(k.re)}, k_im{"k im", of(k.im)},
      value_re{"v re", of(v.re)}, value_im{"v im", of(v.im)}, q_re{"q re", of(q.re)},
      q_im{"q im", of(q.im)};
  detail::check_outputs(kComplexAttention, {{"out re", of(out.re)}, {"out im", of(out.im)}},
                        {q_re, q_im}, {k_re, k_im, value_re, value_im, mask, weights});
  detail::check_outputs(kComplexAttention, {weights}, {},
                        {q_re, q_im, k_re, k_im, value_re, value_im, mask});
  const Reader v_re{&v.re}, v_im{&v.im};
  const Writer o_re{&out.re}, o_im{&out.im};
  for (Index b = 0; b < q.re.batch; ++b)
    for (Index h = 0; h < q.re.heads; ++h)
      for (Index i = 0; i < q.re.tokens; ++i) {
        rows.make(b, h, i);
        for (Index c = 0; c < v.re.dim; ++c) {
          double x = 0, y = 0;
          for (Index j = 0; j < k.re.tokens; ++j) {
            x += rows.p[static_cast<std::size_t>(j)] * v_re.get(b, h, j, c);
            y += rows.p[static_cast<std::size_t>(j)] * v_im.get(b, h, j, c);
          }
          o_re.put(b, h, i, c, x);
          o_im.put(b, h, i, c, y);
        }
        for (Index j = 0; !w.empty() && j < k.re.tokens; ++j)
          static_cast<double*>(
              w.data)[b * w.stride[0] + h * w.stride[1] + i * w.stride[2] + j * w.stride[3]] =
              rows.p[static_cast<std::size_t>(j)];
      }
}

void complex_attention_gradient(const ComplexAttention& a, const ConstComplexHeads& q,
                                const ConstComplexHeads& k, const ConstComplexHeads& v,
                                const ConstComplexHeads& d_out, const ComplexHeads& d_q,
                                const ComplexHeads& d_k, const ComplexHeads& d_v) {
  Rows rows(a, q, k, v);
  for (const ConstHeads* h : {&d_out.re, &d_out.im}) check_part(*h, q.re, q.re.tokens, v.re.dim);
  for (const Heads* h : {&d_q.re, &d_q.im}) check_part(*h, q.re, q.re.tokens, q.re.dim);
  for (const Heads* h : {&d_k.re, &d_k.im}) check_part(*h, q.re, k.re.tokens, q.re.dim);
  for (const Heads* h : {&d_v.re, &d_v.im}) check_part(*h, q.re, k.re.tokens, v.re.dim);
  // Rows of q and d_out are read before those of d_q are written, a head before its d_k and d_v.
  const detail::Operand up_re{"d_out re", of(d_out.re)}, up_im{"d_out im", of(d_out.im)},
      q_re{"q re", of(q.re)}, q_im{"q im", of(q.im)}, k_re{"k re", of(k.re)},
      k_im{"k im", of(k.im)}, v_re{"v re", of(v.re)}, v_im{"v im", of(v.im)},
      mask{"the mask", detail::memory_of(a.mask)}, dq_re_at{"d_q re", of(d_q.re)},
      dq_im_at{"d_q im", of(d_q.im)};
  detail::check_outputs(kComplexAttention, {dq_re_at, dq_im_at}, {q_re, q_im, up_re, up_im},
                        {k_re, k_im, v_re, v_im, mask});
  detail::check_outputs(kComplexAttention,
                        {{"d_k re", of(d_k.re)},
                         {"d_k im", of(d_k.im)},
                         {"d_v re", of(d_v.re)},
                         {"d_v im", of(d_v.im)}},
                        {q_re, q_im, k_re, k_im, v_re, v_im, up_re, up_im},
                        {dq_re_at, dq_im_at, mask});
  HeadGradient g(q, k, v, d_out, rows.hermitian());
  const Writer dq_re{&d_q.re}, dq_im{&d_q.im};
  for (Index b = 0; b < q.re.batch; ++b)
    for (Index h = 0; h < q.re.heads; ++h) {
      g.clear();
      for (Index i = 0; i < q.re.tokens; ++i) {
        rows.make(b, h, i);
        g.pull_row(rows, b, h, i);
        for (Index c = 0; c < q.re.dim; ++c) {
          dq_re.put(b, h, i, c, g.q1[static_cast<std::size_t>(c)]);
          dq_im.put(b, h, i, c, g.q2[static_cast<std::size_t>(c)]);
        }
      }
      put_rows(d_k, b, h, g.k1, g.k2);
      put_rows(d_v, b, h, g.v1, g.v2);
    }
}

}  // namespace posenc::v0
