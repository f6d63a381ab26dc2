#include "slices/slice_api.h"

namespace tranche::slices {

absl::StatusOr<int> SliceApi::ServerMinor(Deadline) { return absl::UnimplementedError("this API does not tell its version"); }

absl::StatusOr<Slice> SliceApi::DryRunCreate(const Slice&, Deadline) { return absl::UnimplementedError("this API has no dry run"); }

}  // namespace tranche::slices
