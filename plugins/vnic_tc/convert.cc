#include "plugins/vnic_tc/convert.h"

namespace vnic {
namespace json = boost::json;

Identity IdentityOf(const tranche::sdk::Key& key) { return {key.claim_uid, key.request, key.driver, key.pool, key.device, key.share_id}; }

tranche::sdk::Key KeyOf(const Identity& identity) {
  return {identity.claim_uid, identity.request, identity.driver, identity.pool, identity.device, identity.share_id};
}

State ReadState(const std::string& text) {
  State state;
  boost::system::error_code error;
  const json::value value = json::parse(text, error);
  if (error || !value.is_object()) return state;
  const json::object& object = value.get_object();
  const auto text_of = [&](const char* name) {
    const json::value* member = object.if_contains(name);
    return member != nullptr && member->is_string() ? std::string(member->get_string()) : std::string();
  };
  const auto number_of = [&](const char* name) -> std::uint32_t {
    const json::value* member = object.if_contains(name);
    boost::system::error_code wrong;
    const auto number = member != nullptr ? member->to_number<std::uint32_t>(wrong) : 0U;
    return wrong ? 0U : number;
  };
  state.wish.mac = ParseMac(text_of("mac"));
  if (const auto address = ParseInterfaceAddress(text_of("ip"))) state.wish.address = address->address;
  if (const std::uint32_t minor = number_of("minor"); minor != 0) state.wish.minor = minor;
  state.parent = text_of("parent");
  state.mtu = number_of("mtu");
  return state;
}

std::string WriteState(const ShareRecord& record, std::uint32_t mtu) {
  return json::serialize(json::object{
      {"mac", MacText(record.mac)}, {"ip", InterfaceAddressText(record.address)}, {"minor", record.minor}, {"parent", record.parent}, {"mtu", mtu}});
}

void Throw(const Failure& failure) { throw tranche::sdk::Error(failure.code, failure.message); }

}  // namespace vnic
