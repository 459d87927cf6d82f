// Where gomemcache puts keys; what it reads is told in plan.py.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/bradfitz/gomemcache/memcache"
)

func main() {
	var keys []string
	var sets [][]string
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		word, rest, _ := strings.Cut(in.Text(), " ")
		switch word {
		case "key":
			keys = append(keys, rest)
		case "set":
			sets = append(sets, nil)
		default:
			_, name, _ := strings.Cut(rest, " ")
			sets[len(sets)-1] = append(sets[len(sets)-1], name)
		}
	}
	fmt.Println("gomemcache", os.Args[1])
	for _, servers := range sets {
		list := new(memcache.ServerList)
		if err := list.SetServers(servers...); err != nil {
			panic(err)
		}
		at := map[string]int{}
		for i, name := range servers {
			at[name] = i
		}
		for _, key := range keys {
			server, err := list.PickServer(key)
			if err != nil {
				panic(err)
			}
			fmt.Print(at[server.String()])
		}
		fmt.Println()
	}
}
