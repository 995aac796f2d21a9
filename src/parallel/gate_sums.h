// SPDX-License-Identifier: Apache-2.0
// Sums of gates over all tokens of a sequence (relative/forgetting.h) from those of each rank: the ranks exchange the
// totals of their runs of neighbouring tokens.
//
//   c_t = (sum inside the run of t, up to t) + (totals of all runs before it, of any rank)
//   d log f_u = (sum of d c_t over the rank's own t from u on) + (totals of d c of other ranks' runs after u)
#pragma once
#include <deque>
#include <vector>

#include "parallel/exchange.h"
#include "posenc/attention/attention.h"

namespace posenc::inline v0::detail {

class GateSums {
 public:
  // Orders of one row, without sequences. Throws [who].
  GateSums(std::string_view who, const Mask&);

  // Replaces the sums over the rank's own keys, at its queries and its keys, by those over all.
  void make_global(const Group&, DecayTerm&);
  // Adds what other ranks' gradients bring to the rank's own gates, to the gradient of the last key of each run, from which
  // the scheme sums back.
  void add_gradients(const Group&, const TermGradient&) const;

 private:
  // All ranks' runs in the order of the sequence.
  struct Run {
    Index first, rank;
    const double* total;  // a number for each row and head
    std::size_t own;      // which of the rank's own runs it is
  };
  struct Runs {
    std::vector<double> values;
    std::vector<Run> list;
  };
  Runs exchange(const Group&, const std::vector<double>& own, std::size_t columns) const;

  std::vector<Index> first_;                // order of each own run, rising
  std::vector<Index> last_key_;             // of each run
  std::vector<std::size_t> key_, query_;    // the run of each token
  std::deque<std::vector<double>> stores_;  // what terms point to
};

}  // namespace posenc::v0::detail
