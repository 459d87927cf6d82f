# Where Dalli puts keys; what it reads is told in plan.py.
require "dalli"

Server = Struct.new(:name, :weight)
keys = []
sets = []
$stdin.set_encoding("UTF-8")
$stdin.each_line(chomp: true) do |line|
  word, rest = line.split(" ", 2)
  case word
  when "key" then keys << rest
  when "set" then sets << []
  else
    weight, name = rest.split(" ", 2)
    sets.last << Server.new(name, weight.to_i)
  end
end
puts "Dalli #{Dalli::VERSION}"
sets.each do |servers|
  def servers.names = map(&:name)
  servers.each { |server| def server.alive? = true }
  ring = Dalli::Ring.new(servers, {})
  puts keys.map { |key| servers.index { |server| server.equal?(ring.server_for_key(key)) } }.join
end
