// The methods of the admin socket: status, devices, claims, shares, audit, reconcile, verify. Shapes: docs/admin.md.
#pragma once

#include "admin/server.h"

namespace tranche::host {

class Host;
// `host` outlives the server that gets them.
admin::Methods MakeMethods(Host& host);

}  // namespace tranche::host
